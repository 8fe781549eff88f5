"""What users call as `dovetail.hello`."""


def hello(who="world"):
    """A greeting."""
    return f"hello, {who}"
