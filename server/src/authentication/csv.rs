//! Comma-separated files of people and their secrets. An error names the line and never what is in it.

/// A file that cannot be read: the line, and what is wrong in it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("line {0}: a quote inside a field that is not quoted")]
    QuoteInField(usize),
    #[error("line {0}: a quote is not closed")]
    OpenQuote(usize),
    #[error("line {0}: unexpected text after a closing quote")]
    TextAfterQuote(usize),
    #[error("line {line}: at least 3 columns are needed ({secret}, user name, user uid), there are {count}")]
    Columns { line: usize, secret: &'static str, count: usize },
    #[error("line {line}: the {secret} and the user name must not be empty")]
    Empty { line: usize, secret: &'static str },
    #[error("line {line}: duplicate {what}")]
    Duplicate { line: usize, what: &'static str },
}

/// A record and the line that it starts on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub line: usize,
    pub fields: Vec<String>,
}

/// Reads a file as RFC 4180 has it; blank lines are skipped.
pub(crate) fn read(text: &str) -> Result<Vec<Record>, Error> {
    let mut reader = Reader { rest: text, line: 1 };
    let mut records = Vec::new();
    while !reader.rest.is_empty() {
        let record = reader.record()?;
        if record.fields != [""] {
            records.push(record);
        }
    }
    Ok(records)
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl Reader<'_> {
    fn record(&mut self) -> Result<Record, Error> {
        let mut record = Record { line: self.line, fields: Vec::new() };
        loop {
            let field = if self.rest.starts_with('"') { self.quoted()? } else { self.plain()? };
            record.fields.push(field);
            if !self.strip(",") {
                self.end_of_line()?;
                return Ok(record);
            }
        }
    }

    fn plain(&mut self) -> Result<String, Error> {
        let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
        let (field, rest) = self.rest.split_at(end);
        let field = if rest.starts_with(',') { field } else { field.trim_end_matches('\r') };
        if field.contains('"') {
            return Err(Error::QuoteInField(self.line));
        }
        self.rest = if rest.starts_with(',') { rest } else { &self.rest[field.len()..] };
        Ok(field.to_string())
    }

    fn quoted(&mut self) -> Result<String, Error> {
        let start = self.line;
        let mut field = String::new();
        self.strip("\"");
        loop {
            let end = self.rest.find('"').ok_or(Error::OpenQuote(start))?;
            let (part, rest) = self.rest.split_at(end);
            self.line += part.matches('\n').count();
            field.push_str(part);
            self.rest = &rest[1..];
            if !self.strip("\"") {
                return Ok(field);
            }
            field.push('"');
        }
    }

    fn end_of_line(&mut self) -> Result<(), Error> {
        if self.strip("\r\n") || self.strip("\n") {
            self.line += 1;
            return Ok(());
        }
        if self.rest.is_empty() { Ok(()) } else { Err(Error::TextAfterQuote(self.line)) }
    }

    fn strip(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_with_their_lines() {
        let text = "a,b,c\n\n\"x,1\",\"say \"\"y\"\"\",z\r\n\"two\nlines\",q\nlast,";
        let read: Vec<_> = read(text).expect("records").into_iter().map(|r| (r.line, r.fields.join("|"))).collect();
        let want = [(1, "a|b|c"), (3, "x,1|say \"y\"|z"), (4, "two\nlines|q"), (6, "last|")];
        assert_eq!(read, want.map(|(line, text)| (line, text.to_string())));
    }

    #[test]
    fn errors_name_the_line_alone() {
        let cases = [
            ("a\nsecret\"x,b", "line 2: a quote inside a field that is not quoted"),
            ("a\n\"secret", "line 2: a quote is not closed"),
            ("\"secret\"x,b", "line 1: unexpected text after a closing quote"),
        ];
        for (text, want) in cases {
            assert_eq!(read(text).map_err(|error| error.to_string()), Err(want.to_string()));
        }
    }
}
