"""The `kubernetes` package in the shoes of a service account: its token comes from a TokenRequest."""

from kubernetes import client, config
from kubernetes.client.rest import ApiException

config.load_kube_config()
admin = client.CoreV1Api()
rbac = client.RbacAuthorizationV1Api()
space = "shoes"
admin.create_namespace({"metadata": {"name": space}})
admin.create_namespaced_service_account(space, {"metadata": {"name": "robot"}})
request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
token = admin.create_namespaced_service_account_token("robot", space, request).status.token

loaded = client.Configuration.get_default_copy()
own = client.Configuration(host=loaded.host)
own.ssl_ca_cert = loaded.ssl_ca_cert
own.api_key = {"authorization": token}
own.api_key_prefix = {"authorization": "Bearer"}
api = client.ApiClient(own)
robot = client.CoreV1Api(api)

review = client.AuthenticationV1Api(api).create_self_subject_review({})
assert review.status.user_info.username == f"system:serviceaccount:{space}:robot", review
groups = ["system:serviceaccounts", f"system:serviceaccounts:{space}", "system:authenticated"]
assert review.status.user_info.groups == groups, review
try:
    robot.list_namespaced_config_map(space)
    raise AssertionError("an account without rights has read")
except ApiException as error:
    assert error.status == 403, error

rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
rbac.create_namespaced_role(space, {"metadata": {"name": "reader"}, "rules": [rule]})
rbac.create_namespaced_role_binding(space, {
    "metadata": {"name": "robot"},
    "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": space}],
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
})
robot.list_namespaced_config_map(space)

own.api_key = {"authorization": token[:-4]}
try:
    client.CoreV1Api(client.ApiClient(own)).list_namespaced_config_map(space)
    raise AssertionError("a cut token was taken")
except ApiException as error:
    assert error.status == 401, error
print("all done")
