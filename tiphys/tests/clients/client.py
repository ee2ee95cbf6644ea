"""The `kubernetes` package: create, list, watch, patch, selectors, paging."""

import threading

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

config.load_kube_config()
core, apps = client.CoreV1Api(), client.AppsV1Api()
space = "python"
core.create_namespace({"metadata": {"name": space}})

for n in range(7):
    labels = {"parity": "even" if n % 2 == 0 else "odd"}
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=f"map-{n}", labels=labels), data={"n": str(n)})
    made = core.create_namespaced_config_map(space, body)
    assert made.metadata.uid and made.metadata.resource_version

try:
    core.create_namespaced_config_map(space, {"metadata": {"name": "map-1"}})
    raise AssertionError("a second object of one name was made")
except ApiException as error:
    assert error.status == 409, error

names = [item.metadata.name for item in core.list_namespaced_config_map(space, label_selector="parity in (even)").items]
assert names == ["map-0", "map-2", "map-4", "map-6"], names
names = [i.metadata.name for i in core.list_namespaced_config_map(space, field_selector="metadata.name=map-3").items]
assert names == ["map-3"], names

seen, token = [], None
while True:
    page = core.list_namespaced_config_map(space, label_selector="parity", limit=3, _continue=token)
    seen += [item.metadata.name for item in page.items]
    token = page.metadata._continue
    if not token:
        break
    assert page.metadata.remaining_item_count is None, "a selector hides how many are left"
assert seen == [f"map-{n}" for n in range(7)], seen

core.patch_namespaced_config_map("map-1", space, {"data": {"patched": "yes"}})
assert core.read_namespaced_config_map("map-1", space).data == {"n": "1", "patched": "yes"}

start = core.list_namespaced_config_map(space).metadata.resource_version
threading.Timer(0.3, lambda: core.create_namespaced_config_map(space, {"metadata": {"name": "watched"}})).start()
threading.Timer(0.6, lambda: core.delete_namespaced_config_map("watched", space)).start()
events, stream = [], watch.Watch()
for event in stream.stream(core.list_namespaced_config_map, space, resource_version=start, timeout_seconds=20):
    events.append((event["type"], event["object"].metadata.name))
    if event["type"] == "DELETED":
        stream.stop()
assert events == [("ADDED", "watched"), ("DELETED", "watched")], events

template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
apps.create_namespaced_deployment(space, {"metadata": {"name": "d"}, "spec": spec})
apps.patch_namespaced_deployment_scale("d", space, {"spec": {"replicas": 5}})
assert apps.read_namespaced_deployment("d", space).spec.replicas == 5
assert client.VersionApi().get_code().minor == "37"
core.delete_collection_namespaced_config_map(space)
assert not core.list_namespaced_config_map(space).items
print("all done")
