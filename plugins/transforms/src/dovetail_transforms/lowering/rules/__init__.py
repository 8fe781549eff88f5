"""Rules for what operators say in another way in an older opset; `all_rules` has them by name."""
