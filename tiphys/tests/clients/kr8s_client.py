"""The kr8s package: built-in objects and a custom resource."""

import kr8s
from kr8s.objects import ConfigMap, new_class
from kubernetes import client, config

import definition

config.load_kube_config()
definition.create("kr8s.example.com", "Memo", "memos")
api = kr8s.api()
assert api.whoami(), "the client has an identity"

plain = ConfigMap({"metadata": {"name": "plain", "namespace": "default"}, "data": {"a": "1"}})
plain.create()
plain.patch({"data": {"b": "2"}})
assert dict(ConfigMap.get("plain", namespace="default").data) == {"a": "1", "b": "2"}

Memo = new_class(kind="Memo", version="kr8s.example.com/v1", namespaced=True, scalable=True)
memo = Memo({"metadata": {"name": "memo", "namespace": "default", "labels": {"tone": "kind"}},
             "spec": {"text": "hello"}})
memo.create()
memo.refresh()
assert memo.spec.replicas == 1 and memo.exists(), memo.raw
memo.patch({"status": {"conditions": [{"type": "Read", "status": "True"}], "replicas": 1}}, subresource="status")
memo.wait("condition=Read", timeout=20)
memo.label(place="here")
assert [found.name for found in Memo.list(namespace="default", label_selector={"place": "here"})] == ["memo"]
assert [found.name for found in kr8s.get("memos.kr8s.example.com", namespace="default")] == ["memo"]
try:
    memo.patch({"spec": {"replicas": 10}})
    raise AssertionError("an invalid object was stored")
except kr8s.ServerError as error:
    assert "too many replicas" in str(error), error
memo.delete()
memo.wait("delete", timeout=20)
plain.delete()
assert not memo.exists()
client.ApiextensionsV1Api().delete_custom_resource_definition("memos.kr8s.example.com")
print("all done")
