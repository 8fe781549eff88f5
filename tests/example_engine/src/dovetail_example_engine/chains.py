"""The partitioner: straight chains, because a program of this accelerator has one input and one output."""

from dovetail.plugin import Partitioner


class Chains(Partitioner):
    """Cuts the nodes of a backend into maximal chains."""

    def form(self, view):
        """The chains: a node joins its producer's if it is the only reader of the only data that it reads."""
        chain_of, chains = {}, []
        for node in view.nodes:
            read = [value for value in view.reads[node] if not value.is_initializer()]
            before = read[0].producer() if len(read) == 1 else None
            only = before is not None and not read[0].is_graph_output() and len(read[0].uses()) == 1
            if only and before in chain_of and view.backend_of(before) == view.backend_of(node):
                chain = chain_of[before]
            else:
                chain = []
                chains.append(chain)
            chain.append(node)
            chain_of[node] = chain
        return chains
