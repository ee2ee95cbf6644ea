//! Conflicts of an apply without force.

use super::managers::{Manager, identity};
use super::set::{Element, FieldSet, path_text};

/// A manager and its fields that the apply would change.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    /// The manager that owns the fields.
    pub manager: Manager,
    /// The fields that both managers set.
    pub fields: FieldSet,
}

/// Sorted by manager.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflicts {
    /// One entry per manager.
    pub conflicts: Vec<Conflict>,
}

impl Conflicts {
    pub(super) fn new(taken: Vec<(Manager, FieldSet)>) -> Conflicts {
        let mut conflicts: Vec<Conflict> =
            taken.into_iter().map(|(manager, fields)| Conflict { manager, fields }).collect();
        conflicts.sort_by_cached_key(|conflict| identity(&conflict.manager));
        Conflicts { conflicts }
    }

    /// Whether there is no conflict.
    pub fn is_empty(&self) -> bool {
        self.conflicts.is_empty()
    }

    /// Without the fields that may be taken over.
    pub(super) fn without(mut self, allowed: &FieldSet) -> Conflicts {
        for conflict in &mut self.conflicts {
            conflict.fields = conflict.fields.difference(allowed);
        }
        self.conflicts.retain(|conflict| !conflict.fields.is_empty());
        self
    }

    fn each(&self, mut each: impl FnMut(&Manager, &[Element])) {
        for Conflict { manager, fields } in &self.conflicts {
            fields.each_path(|path| each(manager, path));
        }
    }

    /// The causes of the Status, reason FieldManagerConflict: message and field.
    pub fn causes(&self) -> Vec<(String, String)> {
        let mut causes = Vec::new();
        self.each(|manager, path| causes.push((format!("conflict with {}", manager.text()), path_text(path))));
        causes
    }

    /// The message of the Status, code 409, reason Conflict.
    pub fn message(&self) -> String {
        let causes = self.causes();
        if let [(conflict, field)] = causes.as_slice() {
            return format!("Apply failed with 1 conflict: {conflict}: {field}");
        }
        let mut lines = Vec::new();
        for Conflict { manager, fields } in &self.conflicts {
            lines.push(format!("conflicts with {}:", manager.text()));
            fields.each_path(|path| lines.push(format!("- {}", path_text(path))));
        }
        format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
    }
}
