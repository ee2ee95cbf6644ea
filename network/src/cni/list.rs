//! Runs the plugins of a list: ADD in order, each with the result of the previous plugin, DEL in reverse order. Caches
//! the final result.

use serde_json::{Map, Value, json};

use super::cache::{Cache, Entry};
use super::conf::NetworkList;
use super::invoke::Invoker;
use crate::fault;
use crate::spec::command::{Target, Verb};
use crate::spec::error::Error;
use crate::spec::names::{check_identifier, check_interface};
use crate::spec::result::AddResult;

/// The runtime's parameters of an attachment for the plugins, as libcni's `RuntimeConf`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeConf {
    pub container_id: String,
    pub netns: String,
    pub ifname: String,
    pub args: Vec<(String, String)>,
    /// Keyed by capability; a plugin gets those that its configuration declares.
    pub capability_args: Map<String, Value>,
}

impl RuntimeConf {
    fn args_text(&self) -> String {
        self.args.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(";")
    }

    fn check(&self) -> Result<(), Error> {
        check_identifier("container ID", &self.container_id)?;
        check_interface("interface", &self.ifname)
    }
}

/// Runs configuration lists.
pub struct Runner<'a> {
    pub invoker: &'a Invoker,
    pub cache: &'a Cache,
}

impl Runner<'_> {
    /// Runs ADD. If a plugin fails, the caller has to undo what the plugins before it did.
    pub fn add(&self, list: &NetworkList, runtime: &RuntimeConf) -> Result<AddResult, Error> {
        runtime.check()?;
        let mut attachment = None;
        for plugin in &list.plugins {
            let conf = plugin_conf(list, plugin, runtime, attachment.as_ref());
            attachment = Some(self.invoke(Verb::Add, plugin, &conf, runtime)?);
        }
        let attachment = attachment.unwrap_or_default();
        self.cache.write(&Entry {
            container_id: runtime.container_id.clone(),
            ifname: runtime.ifname.clone(),
            network: list.name.clone(),
            config: list.to_bytes(),
            netns: runtime.netns.clone(),
            args: runtime.args.clone(),
            capability_args: runtime.capability_args.clone(),
            result: attachment.to_json(list.version),
            owner: self.cache.owner().to_string(),
        })?;
        fault::point("cni.result-cached")?;
        Ok(attachment)
    }

    /// Runs DEL of every plugin, even if one fails. Returns the first error, and then keeps the cached result.
    pub fn del(&self, list: &NetworkList, runtime: &RuntimeConf) -> Result<(), Error> {
        runtime.check()?;
        let previous = self.previous(list, runtime).filter(|_| list.version.has_check());
        let mut outcome = Ok(());
        for plugin in list.plugins.iter().rev() {
            let conf = plugin_conf(list, plugin, runtime, previous.as_ref());
            let done = self.invoke(Verb::Del, plugin, &conf, runtime);
            outcome = outcome.and(done.map(|_| ()));
        }
        outcome?;
        self.cache.delete(&list.name, &runtime.container_id, &runtime.ifname)
    }

    /// Runs CHECK of every plugin, with the cached result.
    pub fn check(&self, list: &NetworkList, runtime: &RuntimeConf) -> Result<(), Error> {
        runtime.check()?;
        if !list.version.has_check() {
            let version = list.version.as_str();
            return Err(Error::configuration(format!(
                "configuration version {version:?} does not support CHECK command"
            )));
        }
        if list.disable_check {
            return Ok(());
        }
        let missing = || Error::internal(format!("network {:?}: no result of ADD is cached", list.name));
        let previous = self.previous(list, runtime).ok_or_else(missing)?;
        for plugin in &list.plugins {
            self.invoke(Verb::Check, plugin, &plugin_conf(list, plugin, runtime, Some(&previous)), runtime)?;
        }
        Ok(())
    }

    /// Runs GC of every plugin with the valid attachments. Plugins of older versions do not support the command.
    pub fn gc(&self, list: &NetworkList, valid: &[(String, String)]) -> Result<(), Error> {
        if list.disable_gc || !list.version.has_gc() {
            return Ok(());
        }
        let valid: Vec<Value> =
            valid.iter().map(|(id, ifname)| json!({ "containerID": id, "ifname": ifname })).collect();
        let mut outcome = Ok(());
        for plugin in &list.plugins {
            let mut conf = plugin_conf(list, plugin, &RuntimeConf::default(), None);
            conf["cni.dev/valid-attachments"] = valid.clone().into();
            outcome = outcome.and(self.invoke(Verb::Gc, plugin, &conf, &RuntimeConf::default()).map(|_| ()));
        }
        outcome
    }

    /// Runs STATUS of every plugin.
    pub fn status(&self, list: &NetworkList) -> Result<(), Error> {
        if !list.version.has_gc() {
            return Ok(());
        }
        for plugin in &list.plugins {
            let conf = plugin_conf(list, plugin, &RuntimeConf::default(), None);
            self.invoke(Verb::Status, plugin, &conf, &RuntimeConf::default())?;
        }
        Ok(())
    }

    fn previous(&self, list: &NetworkList, runtime: &RuntimeConf) -> Option<AddResult> {
        let entry = self.cache.read(&list.name, &runtime.container_id, &runtime.ifname)?;
        AddResult::from_json(&entry.result).ok()
    }

    fn invoke(&self, verb: Verb, plugin: &Value, conf: &Value, runtime: &RuntimeConf) -> Result<AddResult, Error> {
        let kind = plugin["type"].as_str().unwrap_or_default();
        let args = runtime.args_text();
        let RuntimeConf { container_id, netns, ifname, .. } = runtime;
        let done = self.invoker.invoke(verb, kind, conf, Target { container_id, netns, ifname, args: &args });
        let verb = verb.as_str().to_lowercase();
        done.map_err(|error| error.within(format_args!("plugin type={kind:?} failed ({verb})")))
    }
}

/// The configuration that is passed to a plugin: with the list's name and version, the requested capabilities, and the
/// previous result.
fn plugin_conf(list: &NetworkList, plugin: &Value, runtime: &RuntimeConf, previous: Option<&AddResult>) -> Value {
    let mut conf = plugin.clone();
    conf["name"] = list.name.as_str().into();
    conf["cniVersion"] = list.version.as_str().into();
    let declared = |key: &str| plugin["capabilities"][key] == true;
    let capabilities: Map<String, Value> =
        runtime.capability_args.iter().filter(|(key, _)| declared(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
    if !capabilities.is_empty() {
        conf["runtimeConfig"] = capabilities.into();
    }
    if let Some(previous) = previous {
        conf["prevResult"] = previous.to_json(list.version);
    }
    conf
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::version::Version;

    #[test]
    fn passes_only_declared_capabilities() {
        let list = NetworkList {
            name: "n".to_string(),
            version: Version::V0_3_1,
            disable_check: false,
            disable_gc: false,
            plugins: Vec::new(),
        };
        let args = json!({ "portMappings": [1], "bandwidth": {}, "dns": {} }).as_object().cloned().unwrap();
        let runtime = RuntimeConf { capability_args: args, ..RuntimeConf::default() };
        let plugin =
            json!({ "type": "a", "capabilities": { "portMappings": true, "dns": false, "mac": true }, "name": "x" });
        let conf = plugin_conf(&list, &plugin, &runtime, Some(&AddResult::default()));
        assert_eq!(
            conf,
            json!({
                "type": "a", "name": "n", "cniVersion": "0.3.1",
                "capabilities": { "portMappings": true, "dns": false, "mac": true },
                "runtimeConfig": { "portMappings": [1] },
                "prevResult": { "cniVersion": "0.3.1", "dns": {} },
            })
        );
        assert_eq!(plugin_conf(&list, &json!({ "type": "b" }), &runtime, None).get("runtimeConfig"), None);
    }
}
