# What `dovetail.planning` exports, each name with its module: type checkers and `lazy_imports` read this.

from dovetail.ir.origin import (
    from_source as from_source,
    origin_of as origin_of,
    set_origin as set_origin,
    source_text as source_text,
)
from dovetail.planning.claim import (
    Claim as Claim,
    Claims as Claims,
    ParameterRule as ParameterRule,
    PortRule as PortRule,
    Refusal as Refusal,
    Verdict as Verdict,
    claim_of as claim_of,
    facts_of as facts_of,
)
from dovetail.planning.conversion import (
    Join as Join,
    NodeMaker as NodeMaker,
    Step as Step,
)
from dovetail.planning.edits import Edit as Edit
from dovetail.planning.node_keys import (
    decided_key as decided_key,
    identity as identity,
    keep_key as keep_key,
    key_of as key_of,
    operator_name as operator_name,
    set_key as set_key,
    structural_keys as structural_keys,
    walk as walk,
)
from dovetail.planning.node_request import IN_FLOATS as IN_FLOATS, NodeRequest as NodeRequest
from dovetail.planning.placement import (
    HOST as HOST,
    PART as PART,
    Placement as Placement,
    get_placement as get_placement,
    kind_of as kind_of,
    placed_backends as placed_backends,
    placement_of as placement_of,
    set_kind as set_kind,
    set_placement as set_placement,
)
from dovetail.planning.plan import (
    Plan as Plan,
    PlannedBackend as PlannedBackend,
    PlannedNode as PlannedNode,
    SourceNode as SourceNode,
    VERSION as VERSION,
    coverage_line as coverage_line,
)
from dovetail.planning.quantized_value import (
    QuantizedValue as QuantizedValue,
    ObserverChoice as ObserverChoice,
    Parameters as Parameters,
    parse_quantized_values as parse_quantized_values,
    quantized_values_document as quantized_values_document,
)
from dovetail.planning.extraction import extract as extract, model_of as model_of
from dovetail.planning.regions import (
    BorderValue as BorderValue,
    Groups as Groups,
    Region as Region,
    given_regions as given_regions,
    in_order as in_order,
    numbered_regions as numbered_regions,
    placed_backend as placed_backend,
    regions_from as regions_from,
)
from dovetail.planning.rejections import Rejection as Rejection
from dovetail.planning.remark import (
    Kind as Kind,
    NO_FACTS as NO_FACTS,
    OF_PROGRAMS as OF_PROGRAMS,
    Remark as Remark,
    Remedy as Remedy,
    SLOT as SLOT,
    assumed as assumed,
    remedy as remedy,
    template as template,
)
from dovetail.planning.selectors import parse_pin as parse_pin, select as select
