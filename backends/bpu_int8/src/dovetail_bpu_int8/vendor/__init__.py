"""Files of the vendor's tools hb_mapper and hb_compile: reading their requests, and writing them."""
