"""The partitioner `pairs`: a node together with the only node that reads it, such as a product and its activation."""

from dovetail.plugin import Partitioner


class Pairs(Partitioner):
    """Forms regions of two nodes at most."""

    def form(self, view):
        first_of, taken = {}, set()
        for node in view.nodes:
            readers = {reader for value in node.outputs for reader, _ in value.uses()}
            reader = readers.pop() if len(readers) == 1 else None
            alone = reader not in view.reads or reader in taken or node in taken
            if reader is not None and not alone and view.backend_of(reader) in view.backends:
                first_of[node] = reader
                taken |= {node, reader}
        pairs = [[node, reader] for node, reader in first_of.items()]
        return [*pairs, *([node] for node in view.nodes if node not in taken)]
