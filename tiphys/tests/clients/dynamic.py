"""The dynamic client of the `kubernetes` package with a custom resource."""

import threading

from kubernetes import client, config, dynamic
from kubernetes.client.rest import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError, UnprocessibleEntityError

import definition

config.load_kube_config()
definition.create("dynamic.example.com", "Note", "notes")
cluster = dynamic.DynamicClient(client.ApiClient())
notes = cluster.resources.get(api_version="dynamic.example.com/v1", kind="Note")
space = "default"


def note(name, **spec):
    return {"apiVersion": "dynamic.example.com/v1", "kind": "Note", "metadata": {"name": name}, "spec": spec}


created = notes.create(body=note("first", text="hello"), namespace=space)
assert created.spec.replicas == 1 and created.metadata.generation == 1, created
for body, message in [(note("bad", text="x" * 21), "spec.text"), (note("bad", replicas=10), "too many replicas")]:
    try:
        notes.create(body=body, namespace=space)
        raise AssertionError("an invalid object was created")
    except UnprocessibleEntityError as error:
        assert message in str(error.body), error
try:
    notes.create(body=note("first"), namespace=space)
    raise AssertionError("a second object of one name was created")
except ConflictError:
    pass

applied = notes.server_side_apply(
    body=note("first", items=[{"name": "a", "value": "1"}]), namespace=space, field_manager="one")
assert applied.spec.text == "hello", applied
applied = notes.server_side_apply(
    body=note("first", items=[{"name": "b", "value": "2"}]), namespace=space, field_manager="two")
assert [item.name for item in applied["spec"]["items"]] == ["a", "b"], applied

patched = notes.patch(body=[{"op": "replace", "path": "/spec/text", "value": "json"}], name="first", namespace=space,
                      content_type="application/json-patch+json")
assert patched.spec.text == "json" and patched.metadata.generation > 1, patched
generation = patched.metadata.generation
status = notes.status.patch(body={"status": {"replicas": 3}, "spec": {"text": "ignored"}}, name="first",
                            namespace=space, content_type="application/merge-patch+json")
assert status.status.replicas == 3 and status.spec.text == "json", status
assert status.metadata.generation == generation, status
scale = notes.scale.get(name="first", namespace=space)
assert scale.kind == "Scale" and scale.status.replicas == 3, scale
notes.scale.patch(body={"spec": {"replicas": 4}}, name="first", namespace=space,
                  content_type="application/merge-patch+json")
assert notes.get(name="first", namespace=space).spec.replicas == 4

listed = notes.get(namespace=space)
writer = threading.Timer(0.3, lambda: (notes.create(body=note("second"), namespace=space),
                                       notes.delete(name="second", namespace=space)))
writer.start()
events = []
for event in notes.watch(namespace=space, resource_version=listed.metadata.resourceVersion, timeout=20):
    events.append((event["type"], event["object"].metadata.name))
    if event["type"] == "DELETED":
        break
assert events == [("ADDED", "second"), ("DELETED", "second")], events

custom = client.CustomObjectsApi()
page = custom.list_namespaced_custom_object("dynamic.example.com", "v1", space, "notes", limit=1)
assert [item["metadata"]["name"] for item in page["items"]] == ["first"] and page["kind"] == "NoteList", page
notes.delete(name="first", namespace=space)
try:
    notes.get(name="first", namespace=space)
    raise AssertionError("a deleted object is served")
except NotFoundError:
    pass
client.ApiextensionsV1Api().delete_custom_resource_definition("notes.dynamic.example.com")
print("all done")
