//! Tables of text.

/// Rows with their columns aligned.
pub(super) fn aligned(rows: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let rows: Vec<Vec<String>> = rows.collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(at, cell)| format!("{cell:<0$}", width(at)));
        cells.collect::<Vec<_>>().join("   ").trim_end().to_string()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["NAME", "STATE"], ["node-2", "running"]].map(|row| row.map(str::to_string).to_vec());
        assert_eq!(aligned(rows.into_iter()), ["NAME     STATE", "node-2   running"]);
    }
}
