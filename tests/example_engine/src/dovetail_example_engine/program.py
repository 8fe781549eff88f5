"""The program file: a line that says for which revision of the accelerator it is, and the compiled region."""

import zlib

NAME = "net.program"


def packed(revision, model):
    """A program for a revision."""
    return f"ACME {revision}\n".encode() + zlib.compress(model)


def unpacked(content):
    """The revision of a program and its model.

    Raises:
        ValueError: It is no program.
    """
    head, _, rest = content.partition(b"\n")
    word, _, revision = head.decode("ascii", "replace").partition(" ")
    if word != "ACME":
        raise ValueError("it is no program of Acme")
    return revision, zlib.decompress(rest)
