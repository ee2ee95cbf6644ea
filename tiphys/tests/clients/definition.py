"""A definition that the scripts share."""

import time

from kubernetes import client


def create(group, kind, plural, namespaced=True):
    """Creates a definition with status and scale, and waits until it is established."""
    properties = {
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer", "minimum": 0, "default": 1},
                "text": {"type": "string", "maxLength": 20},
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                    },
                },
            },
            "x-kubernetes-validations": [{"rule": "self.replicas < 10", "message": "too many replicas"}],
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    api = client.ApiextensionsV1Api()
    api.create_custom_resource_definition({
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [{
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
            }],
        },
    })
    deadline = time.monotonic() + 20
    while True:
        status = api.read_custom_resource_definition(f"{plural}.{group}").status
        conditions = {condition.type: condition.status for condition in (status.conditions or [])}
        if conditions.get("Established") == "True":
            return
        assert time.monotonic() < deadline, conditions
        time.sleep(0.02)
