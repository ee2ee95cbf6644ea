//! Reinvocation: plugins, policies and webhooks have not seen the changes of later ones. The built-in plugins then run
//! once more, and the policies and webhooks with reinvocationPolicy IfNeeded.

use stdx::sync::{Mutex, MutexGuard};

use api::Tree;

/// A group of admission steps with reinvocation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Group {
    Policies,
    Webhooks,
}

#[derive(Default)]
pub(crate) struct Rounds(Mutex<State>);

#[derive(Default)]
struct State {
    second: bool,
    wanted: bool,
    policies: Members,
    webhooks: Members,
}

/// The policies or webhooks of a request.
#[derive(Default)]
struct Members {
    /// Members that were called in the first round and can be reinvoked.
    willing: Vec<String>,
    /// The called ones that are due again, because the object has changed since.
    due: Vec<String>,
    /// The object after the group's last call.
    left: Option<Tree>,
}

impl Rounds {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Returns true once, if a second round is required.
    pub(crate) fn begin_second(&self) -> bool {
        let mut state = self.state();
        let begin = state.wanted && !state.second;
        state.second |= begin;
        begin
    }

    pub(crate) fn number(&self) -> u8 {
        u8::from(self.state().second)
    }

    /// Begins a group. In the second round, all reinvocable members are due if other steps have changed the object.
    pub(crate) fn begin(&self, group: Group, object: Option<&Tree>) {
        let mut state = self.state();
        let second = state.second;
        let members = state.members(group);
        if second && members.left.as_ref() != object {
            members.due_all();
        }
    }

    pub(crate) fn end(&self, group: Group, object: Option<&Tree>) {
        let mut state = self.state();
        // Only steps after the policies can still require a second round.
        if state.wanted || matches!(group, Group::Policies) {
            state.members(group).left = object.cloned();
        }
    }

    /// The second round calls no member for the first time.
    pub(crate) fn may_call(&self, group: Group, id: &str) -> bool {
        let mut state = self.state();
        !state.second || state.members(group).due.iter().any(|due| due == id)
    }

    /// Records the call of a reinvocable policy or webhook.
    pub(crate) fn called(&self, group: Group, id: &str) {
        let mut state = self.state();
        if !state.second {
            state.members(group).willing.push(id.to_string());
        }
    }

    /// Records that the last call has changed the object: the calls before it are due again.
    pub(crate) fn changed(&self, group: Group) {
        let mut state = self.state();
        state.wanted = true;
        state.members(group).due_all();
    }
}

impl State {
    fn members(&mut self, group: Group) -> &mut Members {
        match group {
            Group::Policies => &mut self.policies,
            Group::Webhooks => &mut self.webhooks,
        }
    }
}

impl Members {
    fn due_all(&mut self) {
        for id in &self.willing {
            if !self.due.contains(id) {
                self.due.push(id.clone());
            }
        }
    }
}
