"""The data of a report: what the model, the plan and the remarks of a result say, as one JSON document."""
