"""A format of backend files: a line with the name of the backend, then one per operator that it computes."""

from dovetail.plugin import BackendFormat, BackendSummary, DovetailError

from dovetail_example_tools.toy_npu import ToyNpu


class OperatorList(BackendFormat):
    """Reads `NAME.backend.list`; its backends are toy NPUs with operators of their own."""

    suffix, endings = ".backend.list", ()

    def name(self, source):
        return _words(source)[0]

    def peek(self, source):
        return BackendSummary(self.name(source), "from a list of operators", ToyNpu.device, ToyNpu.engines)

    def load(self, source, find, options, facts):
        if options:
            raise DovetailError(f"{source.name}: a list of operators has no option '{next(iter(options))}'")
        return ListedNpu(source)

    def check(self, source, known, load):
        load({})


class ListedNpu(ToyNpu):
    """A toy NPU that takes what its file lists."""

    summary = "from a list of operators"

    def __init__(self, source):
        super().__init__({})
        self.name, *self._operators = _words(source)
        self.source = source.name


def _words(source):
    words = source.read_bytes().decode().split()
    if not words:
        raise DovetailError(f"{source.name}: it is empty", "the first line is the name of the backend")
    return words
