"""Fails where GitHub would not take an action or a workflow, or Grafana not all of a dashboard."""

import importlib.util
import json
import pathlib
import sys

import jsonschema
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def github(kind: str, path: str) -> list[str]:
    # Of the package its schemas alone: to import it takes others.
    package = pathlib.Path(importlib.util.find_spec("check_jsonschema").origin).parent
    schema = json.loads((package / f"builtin_schemas/vendor/github-{kind}s.json").read_text())
    with open(path) as file:
        document = yaml.safe_load(file)
    if True in document:
        # YAML 1.1 reads `on` so.
        document["on"] = document.pop(True)
    validator = jsonschema.validators.validator_for(schema)(schema)
    return [error.message for error in validator.iter_errors(document)]


def lost(before: object, after: object, place: str) -> list[str]:
    """What Grafana's own types do not keep."""
    if isinstance(before, dict) and isinstance(after, dict):
        pairs = [(f"{place}.{key}", value, after.get(key)) for key, value in before.items()]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(f"{place}[{at}]", *pair) for at, pair in enumerate(zip(before, after))]
    else:
        return [] if before == after else [f"{place}: {before!r} is read as {after!r}"]
    return [line for name, *pair in pairs for line in lost(*pair, name)]


def grafana(path: str) -> list[str]:
    register_default_plugins()
    with open(path) as file:
        document = json.load(file)
    read = Dashboard.from_json(document)
    return lost(document, json.loads(JSONEncoder().encode(read)), "")


kind, *paths = sys.argv[1:]
for path in paths:
    for line in grafana(path) if kind == "grafana" else github(kind, path):
        sys.exit(f"{path}: {line}")
