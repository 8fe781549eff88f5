"""An emitter whose tool does not work, and an engine that runs what it would make."""

from dovetail.plugin import Availability, Emitter, Engine, EngineError, Reads


class Raising(Emitter):
    def emit(self, region, folder):
        raise EngineError("acmec: license not found", "set ACME_LICENSE")


class Runs(Engine):
    name = "acme-runs"
    loads_artifacts = True
    reads = Reads(26, 13, frozenset({"float32", "float16"}))

    def available(self):
        return Availability(True)

    def load(self, region, options):
        raise EngineError("nothing was compiled")
