"""An operator by the kopf framework, with its own definition, finalizers and status; and a client that uses it."""

import logging
import threading
import time

import kopf
from kubernetes import client, config
from kubernetes.client.rest import ApiException

import definition

GROUP, VERSION, PLURAL, SPACE = "kopf.example.com", "v1", "databases", "default"
cleaned = threading.Event()


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.level = logging.WARNING
    settings.persistence.finalizer = f"{GROUP}/finalizer"


@kopf.on.create(GROUP, VERSION, PLURAL)
@kopf.on.update(GROUP, VERSION, PLURAL, field="spec")
def apply(spec, name, namespace, patch, **_):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-settings"},
            "data": {"text": spec.get("text", "")}}
    kopf.adopt(body)
    core = client.CoreV1Api()
    try:
        core.create_namespaced_config_map(namespace, body)
    except ApiException as error:
        assert error.status == 409, error
        core.patch_namespaced_config_map(body["metadata"]["name"], namespace, body)
    patch.status["replicas"] = spec["replicas"]
    patch.status["phase"] = "Ready"


@kopf.on.delete(GROUP, VERSION, PLURAL)
def clean(name, **_):
    cleaned.set()


def until(what, look):
    deadline = time.monotonic() + 40
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def absent(read, *arguments):
    try:
        read(*arguments)
        return False
    except ApiException as error:
        return error.status == 404


config.load_kube_config()
definition.create(GROUP, "Database", PLURAL)
objects, core = client.CustomObjectsApi(), client.CoreV1Api()
ready, stop = threading.Event(), threading.Event()
operator = threading.Thread(
    target=lambda: kopf.run(standalone=True, namespace=SPACE, ready_flag=ready, stop_flag=stop), daemon=True)
operator.start()
assert ready.wait(40), "the operator does not start"

database = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Database", "metadata": {"name": "main"},
            "spec": {"text": "first"}}
objects.create_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, database)
read = lambda: objects.get_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, "main")
until("the status", lambda: read().get("status", {}).get("phase") == "Ready")
settings = core.read_namespaced_config_map("main-settings", SPACE)
assert settings.data == {"text": "first"}, settings
assert settings.metadata.owner_references[0].uid == read()["metadata"]["uid"], settings
assert read()["metadata"]["finalizers"] == [f"{GROUP}/finalizer"], read()

objects.patch_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, "main", {"spec": {"text": "second"}})
until("the change", lambda: core.read_namespaced_config_map("main-settings", SPACE).data == {"text": "second"})
objects.delete_namespaced_custom_object(GROUP, VERSION, SPACE, PLURAL, "main")
until("the deletion", lambda: absent(read))
assert cleaned.is_set(), "the finalizer did not run"
until("the owned object", lambda: absent(core.read_namespaced_config_map, "main-settings", SPACE))
stop.set()
operator.join(40)
assert not operator.is_alive(), "the operator does not stop"
client.ApiextensionsV1Api().delete_custom_resource_definition(f"{PLURAL}.{GROUP}")
print("all done")
