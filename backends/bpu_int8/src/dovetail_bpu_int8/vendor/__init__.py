"""The files of the vendor's tools, hb_mapper and hb_compile: what they ask for here, and what is written for them."""
