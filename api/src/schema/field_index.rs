//! Finds a type's field by name: every traversal of an object looks up each of its keys.

use super::Field;

/// A hash table of field indexes, twice as large as the number of fields. Names of one type differ enough in length
/// and a few letters that one comparison almost always suffices.
#[derive(Debug, Default)]
pub(super) struct FieldIndex {
    /// An index plus one; 0 is free. The length is a power of two, or 0.
    table: Vec<u16>,
}

impl FieldIndex {
    pub(super) const fn new() -> FieldIndex {
        FieldIndex { table: Vec::new() }
    }

    pub(super) fn of(fields: &[&'static Field]) -> FieldIndex {
        let mut table = vec![0; (fields.len() * 2).next_power_of_two()];
        for (place, field) in fields.iter().enumerate() {
            let mut slot = hash(field.name);
            while table[slot & (table.len() - 1)] != 0 {
                slot += 1;
            }
            let length = table.len();
            table[slot & (length - 1)] = place as u16 + 1;
        }
        FieldIndex { table }
    }

    pub(super) fn find(&self, name: &str, fields: &[&'static Field]) -> Option<usize> {
        let mask = self.table.len().checked_sub(1)?;
        let mut slot = hash(name);
        // Half of the table is free: the loop ends.
        while let Some(place) = usize::from(self.table[slot & mask]).checked_sub(1) {
            if fields[place].name == name {
                return Some(place);
            }
            slot += 1;
        }
        None
    }
}

fn hash(name: &str) -> usize {
    let bytes = name.as_bytes();
    let Some(last) = bytes.len().checked_sub(1) else { return 0 };
    let letter = |at: usize| usize::from(bytes[at]);
    letter(0) + 5 * letter(last) + 13 * letter(last / 2) + 31 * bytes.len()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_field_of_every_type_is_found_and_no_other() {
        for ty in crate::schema::schema().types() {
            for (place, field) in ty.fields().iter().enumerate() {
                assert_eq!(ty.field_index(field.name), Some(place), "{}.{}", ty.name, field.name);
            }
            assert_eq!(ty.field_index("no such field"), None);
            assert_eq!(ty.field_index(""), None);
        }
    }
}
