"""The data of a report: model, plan and remarks of a result, as one JSON document."""
