//! Columns that are aligned by spaces, as upstream's tables are.

const MIN_WIDTH: usize = 6;
const PADDING: usize = 3;

/// Collects lines of cells, and aligns them. Widths are remembered, so that later lines fit to those that are shown.
#[derive(Debug, Default)]
pub(crate) struct TabWriter {
    lines: Vec<Vec<String>>,
    remembered: Vec<usize>,
}

impl TabWriter {
    /// Adds a line of cells; the last one is not padded.
    pub(crate) fn line(&mut self, cells: Vec<String>) {
        self.lines.push(cells);
    }

    /// Adds text whose cells end with tabs.
    pub(crate) fn text(&mut self, text: &str) {
        for line in text.split('\n').take(text.matches('\n').count().max(1)) {
            self.line(line.split('\t').map(str::to_string).collect());
        }
    }

    /// Whether no line waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Forgets the widths: other columns follow.
    pub(crate) fn forget(&mut self) {
        self.remembered.clear();
    }

    /// The aligned lines.
    pub(crate) fn flush(&mut self) -> String {
        let lines = std::mem::take(&mut self.lines);
        let count = lines.iter().map(Vec::len).max().unwrap_or(0);
        let mut widths: Vec<Vec<usize>> = lines.iter().map(|line| vec![0; line.len()]).collect();
        for column in 0..count {
            self.set_widths(&lines, column, &mut widths);
        }
        let mut out = String::new();
        for (line, widths) in lines.iter().zip(&widths) {
            for (at, cell) in line.iter().enumerate() {
                out.push_str(cell);
                if at + 1 < line.len() {
                    out.extend(std::iter::repeat_n(' ', widths[at].saturating_sub(cell.chars().count())));
                }
            }
            out.push('\n');
        }
        out
    }

    /// A column is a block of adjacent lines that have a cell before their last one there.
    fn set_widths(&mut self, lines: &[Vec<String>], column: usize, widths: &mut [Vec<usize>]) {
        let mut at = 0;
        while at < lines.len() {
            if column + 1 >= lines[at].len() {
                at += 1;
                continue;
            }
            let end = (at..lines.len()).find(|line| column + 1 >= lines[*line].len()).unwrap_or(lines.len());
            let widest = lines[at..end].iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
            let before = self.remembered.get(column).copied().unwrap_or(0);
            let width = (widest + PADDING).max(MIN_WIDTH).max(before);
            if self.remembered.len() <= column {
                self.remembered.resize(column + 1, 0);
            }
            self.remembered[column] = width;
            for widths in &mut widths[at..end] {
                widths[column] = width;
            }
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_columns() {
        let mut tabs = TabWriter::default();
        tabs.text("NAME\tREADY\tAGE\n");
        tabs.text("a\t1/1\t5s\n");
        tabs.text("long-name\t1/1\t5s\n");
        assert_eq!(tabs.flush(), "NAME        READY   AGE\na           1/1     5s\nlong-name   1/1     5s\n");
        tabs.text("b\t0/1\t1s\n");
        assert_eq!(tabs.flush(), "b           0/1     1s\n");
    }
}
