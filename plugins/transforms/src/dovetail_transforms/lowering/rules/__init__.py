"""Rules for operators that are expressed differently in an older opset; `all_rules` lists them by name."""
