//! Reinvocation: plugins and webhooks have not seen the changes of later webhooks. The built-in plugins then run once
//! more, and the webhooks with reinvocationPolicy IfNeeded.

use stdx::sync::{Mutex, MutexGuard};

use api::Tree;

use super::compiled::Hook;

#[derive(Default)]
pub(crate) struct Rounds(Mutex<State>);

#[derive(Default)]
struct State {
    second: bool,
    wanted: bool,
    /// Called in the first round, and willing to be called again.
    willing: Vec<String>,
    /// Of those, the ones before which something has changed since.
    due: Vec<String>,
    /// The object as the webhooks left it.
    left: Option<Tree>,
}

impl Rounds {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// True once, where a second round is wanted.
    pub(crate) fn begin_second(&self) -> bool {
        let mut state = self.state();
        let begin = state.wanted && !state.second;
        state.second |= begin;
        begin
    }

    pub(crate) fn number(&self) -> u8 {
        u8::from(self.state().second)
    }

    /// The webhooks' turn. In the second round all that are willing are due, if the built-in plugins have
    /// changed something.
    pub(crate) fn begin(&self, object: Option<&Tree>) {
        let mut state = self.state();
        if state.second && state.left.as_ref() != object {
            state.due_all();
        }
    }

    pub(crate) fn end(&self, object: Option<&Tree>) {
        let mut state = self.state();
        if state.wanted {
            state.left = object.cloned();
        }
    }

    /// In the second round no webhook is called for the first time.
    pub(crate) fn may_call(&self, id: &str) -> bool {
        let state = self.state();
        !state.second || state.due.iter().any(|due| due == id)
    }

    pub(crate) fn called(&self, hook: &Hook) {
        let mut state = self.state();
        if hook.reinvoke && !state.second {
            state.willing.push(hook.id.clone());
        }
    }

    /// The webhook that was called last has changed the object: those before it are due.
    pub(crate) fn changed(&self) {
        let mut state = self.state();
        state.wanted = true;
        state.due_all();
    }
}

impl State {
    fn due_all(&mut self) {
        for id in &self.willing {
            if !self.due.contains(id) {
                self.due.push(id.clone());
            }
        }
    }
}
