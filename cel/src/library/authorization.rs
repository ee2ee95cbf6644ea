//! Checks whether the user of a request, or a service account, is allowed to do something.

use std::sync::Arc;

use api::validation;

use super::{Function, no_overload};
use crate::library::signature::Row;
use crate::value::{
    AuthorizerRequest, AuthorizerTarget, AuthorizerValue, EvalError, Opaque, ResourceCheck, ResourceRequest, Value,
};

pub(super) const ROWS: &[Row] = &[
    ("path", "authorizer_path", "kubernetes.authorization.Authorizer.(string) -> kubernetes.authorization.PathCheck"),
    (
        "group",
        "authorizer_group",
        "kubernetes.authorization.Authorizer.(string) -> kubernetes.authorization.GroupCheck",
    ),
    (
        "serviceAccount",
        "authorizer_serviceaccount",
        "kubernetes.authorization.Authorizer.(string, string) -> kubernetes.authorization.Authorizer",
    ),
    (
        "resource",
        "groupcheck_resource",
        "kubernetes.authorization.GroupCheck.(string) -> kubernetes.authorization.ResourceCheck",
    ),
    ("subresource", "resourcecheck_subresource", CHECK),
    ("namespace", "resourcecheck_namespace", CHECK),
    ("name", "resourcecheck_name", CHECK),
    ("fieldSelector", "authorizer_fieldselector", CHECK),
    ("labelSelector", "authorizer_labelselector", CHECK),
    ("check", "pathcheck_check", "kubernetes.authorization.PathCheck.(string) -> kubernetes.authorization.Decision"),
    (
        "check",
        "resourcecheck_check",
        "kubernetes.authorization.ResourceCheck.(string) -> kubernetes.authorization.Decision",
    ),
    ("errored", "decision_errored", "kubernetes.authorization.Decision.() -> bool"),
    ("error", "decision_error", "kubernetes.authorization.Decision.() -> string"),
    ("allowed", "decision_allowed", "kubernetes.authorization.Decision.() -> bool"),
    ("reason", "decision_reason", "kubernetes.authorization.Decision.() -> string"),
];

const CHECK: &str = "kubernetes.authorization.ResourceCheck.(string) -> kubernetes.authorization.ResourceCheck";

pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "path" => |_, args| match args {
            [Value::Opaque(Opaque::Authorizer(_)), Value::String(path)] if path.trim().is_empty() => {
                Err(EvalError::failed("path must not be empty"))
            }
            [Value::Opaque(Opaque::Authorizer(authorizer)), Value::String(path)] => {
                let check = ((**authorizer).clone(), Arc::from(&**path));
                Ok(Value::Opaque(Opaque::PathCheck(Arc::new(check))))
            }
            _ => no_overload(),
        },
        "group" => |_, args| match args {
            [Value::Opaque(Opaque::Authorizer(authorizer)), Value::String(group)] => {
                let check = ((**authorizer).clone(), Arc::from(&**group));
                Ok(Value::Opaque(Opaque::GroupCheck(Arc::new(check))))
            }
            _ => no_overload(),
        },
        "serviceAccount" => |_, args| service_account(args),
        "resource" => |_, args| resource(args),
        "subresource" => |_, args| set(args, |request, value| request.subresource = value),
        "namespace" => |_, args| set(args, |request, value| request.namespace = value),
        "name" => |_, args| set(args, |request, value| request.name = value),
        "fieldSelector" => |_, args| set(args, |request, value| request.field_selector = value),
        "labelSelector" => |_, args| set(args, |request, value| request.label_selector = value),
        "check" => |_, args| check(args),
        "errored" | "error" | "allowed" | "reason" => return find_decision(name),
        _ => return None,
    })
}

fn find_decision(name: &str) -> Option<Function> {
    Some(match name {
        "errored" => |_, args| match args {
            [Value::Opaque(Opaque::Decision(decision))] => Ok(Value::Bool(decision.error.is_some())),
            _ => no_overload(),
        },
        "error" => |_, args| match args {
            [Value::Opaque(Opaque::Decision(decision))] => Ok(Value::string(decision.error.as_deref().unwrap_or(""))),
            _ => no_overload(),
        },
        "allowed" => |_, args| match args {
            [Value::Opaque(Opaque::Decision(decision))] => Ok(Value::Bool(decision.allowed)),
            _ => no_overload(),
        },
        "reason" => |_, args| match args {
            [Value::Opaque(Opaque::Decision(decision))] => Ok(Value::string(decision.reason.as_str())),
            _ => no_overload(),
        },
        _ => return None,
    })
}

fn service_account<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::Opaque(Opaque::Authorizer(authorizer)), Value::String(namespace), Value::String(name)] = args else {
        return no_overload();
    };
    if !validation::dns1123_subdomain(name).is_empty() {
        return Err(EvalError::failed("Invalid service account name"));
    }
    if !validation::dns1123_label(namespace).is_empty() {
        return Err(EvalError::failed("Invalid service account namespace"));
    }
    let account = Some((Arc::from(&**namespace), Arc::from(&**name)));
    let value = AuthorizerValue { authorizer: authorizer.authorizer, service_account: account };
    Ok(Value::Opaque(Opaque::Authorizer(Arc::new(value))))
}

fn resource<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::Opaque(Opaque::GroupCheck(group)), Value::String(resource)] = args else { return no_overload() };
    if resource.trim().is_empty() {
        return Err(EvalError::failed("resource must not be empty"));
    }
    let request = ResourceRequest { group: group.1.to_string(), resource: resource.to_string(), ..Default::default() };
    let check = ResourceCheck { authorizer: group.0.clone(), request };
    Ok(Value::Opaque(Opaque::ResourceCheck(Arc::new(check))))
}

fn set<'a>(args: &[Value<'a>], apply: fn(&mut ResourceRequest, String)) -> Result<Value<'a>, EvalError> {
    let [Value::Opaque(Opaque::ResourceCheck(check)), Value::String(value)] = args else { return no_overload() };
    let mut check = (**check).clone();
    apply(&mut check.request, value.to_string());
    Ok(Value::Opaque(Opaque::ResourceCheck(Arc::new(check))))
}

fn check<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (authorizer, verb, target) = match args {
        [Value::Opaque(Opaque::PathCheck(check)), Value::String(verb)] => {
            (&check.0, verb, AuthorizerTarget::Path(&check.1))
        }
        [Value::Opaque(Opaque::ResourceCheck(check)), Value::String(verb)] => {
            (&check.authorizer, verb, AuthorizerTarget::Resource(&check.request))
        }
        _ => return no_overload(),
    };
    let service_account = authorizer.service_account.as_ref().map(|(namespace, name)| (&**namespace, &**name));
    let decision = authorizer.authorizer.authorize(&AuthorizerRequest { service_account, verb, target });
    Ok(Value::Opaque(Opaque::Decision(Arc::new(decision))))
}
