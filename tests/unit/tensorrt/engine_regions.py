"""Models typed for engines, and the regions that would become engines."""

import dovetail
from dovetail.passes import Context, Request, compose
from dovetail.planning import extract
from dovetail.plugin.loading import load_backend_file
from dovetail_placement.regions.topological import numbered_or_formed

STAGES = ("normalize", "analyze", "place", "type", "calibrate", "quantize", "join", "outline")


def typed(model, plugins, backends="tensorrt", **request):
    """A model as it is before anything is emitted: placed, typed, with all conversions; and the context."""
    source = dovetail.open(model)
    names = [backends] if isinstance(backends, str) else backends
    context = Context(Request.of(*names, **request), plugins=plugins)
    compose(plugins.registry, stages=STAGES, plugins=plugins).run(source, context)
    return source, context


def engine_regions(model):
    """The regions on `tensorrt`, each as a model of its own."""
    return [extract(model, region) for region in numbered_or_formed(model.graph) if region.backend == "tensorrt"]


def file_of(plugins, **options):
    """The backend file with its options."""
    return load_backend_file(plugins.registry, plugins.registry.backend["tensorrt"], options)
