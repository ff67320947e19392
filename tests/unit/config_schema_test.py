# SPDX-License-Identifier: Apache-2.0
"""deploy/headgate.schema.json by the reference validator: is a schema of draft 2020-12, accepts the
shipped samples, refuses mistakes. Usage: config_schema_test.py SOURCE_DIR"""
import json
import re
import sys

import jsonschema
import yaml


class Yaml12(yaml.SafeLoader):
    """Booleans and numbers as in YAML 1.2: a bare `off` is a word."""


Yaml12.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules
            if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:int")]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()}
Yaml12.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^-?[0-9]+$"),
                             list("-0123456789"))


def load(path):
    with open(path, encoding="utf-8") as stream:
        return yaml.load(stream, Yaml12)


root = sys.argv[1]
with open(root + "/deploy/headgate.schema.json", encoding="utf-8") as stream:
    schema = json.load(stream)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)

for name in ("deploy/headgate.yaml", "deploy/systemd/headgate.yaml"):
    errors = [error.message for error in validator.iter_errors(load(f"{root}/{name}"))]
    assert not errors, (name, errors)

sample = load(root + "/deploy/headgate.yaml")


def broken(change):
    copy = json.loads(json.dumps(sample))
    change(copy)
    return not validator.is_valid(copy)


assert broken(lambda c: c.update(treshold=0.8))
assert broken(lambda c: c.update(tick=100))
assert broken(lambda c: c.pop("apiVersion"))
assert broken(lambda c: c["targets"][0].update(target=1.5))
assert broken(lambda c: c["targets"][0].update(strategy="oracle"))
assert broken(lambda c: c["targets"][0]["match"].update(cgroup="/a"))
assert broken(lambda c: c["targets"][0]["endpoints"][0].update(port=0))
assert broken(lambda c: c["targets"][0]["endpoints"][0].update(refuse={"defer": 8}))
print("ok")
