//! From Go's syntax of regular expressions to that of `regex`: Go's classes `\d`, `\s`, `\w` and boundaries are ASCII,
//! braces that are no repetition are characters, `\Q…\E` quotes, and set operations inside of brackets do not exist.

/// The maximum count of a repetition.
const MAX_REPEAT: u32 = 1000;
/// The maximum nesting of groups.
const MAX_NESTING: usize = 250;

/// A pattern that is not a regular expression, with Go's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {message}: `{text}`")]
pub(crate) struct RegexError {
    message: &'static str,
    text: String,
}

impl RegexError {
    fn new(message: &'static str, text: impl Into<String>) -> RegexError {
        RegexError { message, text: text.into() }
    }

    pub(super) fn too_large(pattern: &str) -> RegexError {
        RegexError::new("expression too large", pattern)
    }
}

/// The same expression in the syntax of `regex`.
pub(super) fn translate(pattern: &str) -> Result<String, RegexError> {
    let mut translator = Translator {
        pattern,
        rest: pattern,
        out: String::with_capacity(pattern.len()),
        groups: Vec::new(),
        item: Item::Start,
    };
    while !translator.rest.is_empty() {
        translator.step()?;
    }
    match translator.groups.is_empty() {
        true => Ok(translator.out),
        false => Err(RegexError::new("missing closing )", pattern)),
    }
}

/// The previous item, which decides whether a repetition is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Item {
    Start,
    Atom,
    /// A repetition. A question mark after it makes it lazy.
    Repeat,
    /// A lazy repetition.
    Lazy,
}

struct Translator<'p> {
    pattern: &'p str,
    rest: &'p str,
    out: String,
    groups: Vec<()>,
    item: Item,
}

impl Translator<'_> {
    fn take(&mut self, bytes: usize) -> &str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn step(&mut self) -> Result<(), RegexError> {
        let Some(first) = self.rest.chars().next() else { return Ok(()) };
        match first {
            '(' => self.open_group(),
            ')' => self.close_group(),
            '[' => self.class(),
            '\\' => self.escape(),
            '*' | '+' | '?' => self.repeat(1),
            '{' => match repetition(self.rest) {
                Some(length) => self.counted(length),
                None => self.literal(first),
            },
            '|' => {
                self.take(1);
                self.out.push('|');
                self.item = Item::Start;
                Ok(())
            }
            '.' | '^' | '$' => {
                self.take(1);
                self.out.push(first);
                self.item = Item::Atom;
                Ok(())
            }
            _ => self.literal(first),
        }
    }

    fn literal(&mut self, char: char) -> Result<(), RegexError> {
        self.take(char.len_utf8());
        push_literal(&mut self.out, char);
        self.item = Item::Atom;
        Ok(())
    }

    fn open_group(&mut self) -> Result<(), RegexError> {
        if self.groups.len() >= MAX_NESTING {
            return Err(RegexError::new("expression nests too deeply", self.pattern));
        }
        self.item = Item::Start;
        let Some(flags) = self.rest.strip_prefix("(?") else {
            self.groups.push(());
            self.take(1);
            self.out.push('(');
            return Ok(());
        };
        let is_part = |c: char| matches!(c, 'i' | 'm' | 's' | 'U' | '-');
        let invalid = flags.find(|c: char| !is_part(c)).filter(|at| !flags[*at..].starts_with([')', ':']));
        if let Some(at) = invalid.filter(|_| !flags.starts_with(['P', '<'])) {
            let length = flags[at..].chars().next().map_or(0, char::len_utf8);
            return Err(RegexError::new("invalid or unsupported Perl syntax", &self.rest[..2 + at + length]));
        }
        let end = flags.find([')', ':', '>']).ok_or_else(|| RegexError::new("missing closing )", self.pattern))?;
        let (head, close) = (&flags[..end], flags.as_bytes()[end]);
        let is_name = close == b'>' && (head.starts_with("P<") || head.starts_with('<'));
        let is_flags = close != b'>' && head.chars().all(|c| matches!(c, 'i' | 'm' | 's' | 'U' | '-'));
        if !is_name && !is_flags {
            return Err(RegexError::new("invalid or unsupported Perl syntax", &self.rest[..end + 2]));
        }
        if close != b')' {
            self.groups.push(());
        }
        let group = self.take(end + 3).to_owned();
        self.out.push_str(&group);
        Ok(())
    }

    fn close_group(&mut self) -> Result<(), RegexError> {
        if self.groups.pop().is_none() {
            return Err(RegexError::new("unexpected )", self.pattern));
        }
        self.take(1);
        self.out.push(')');
        self.item = Item::Atom;
        Ok(())
    }

    fn repeat(&mut self, length: usize) -> Result<(), RegexError> {
        let is_question = self.rest.starts_with('?');
        let next = match self.item {
            Item::Start => {
                return Err(RegexError::new("missing argument to repetition operator", &self.rest[..length]));
            }
            Item::Atom => Item::Repeat,
            Item::Repeat if is_question => Item::Lazy,
            Item::Repeat | Item::Lazy => {
                return Err(RegexError::new("invalid nested repetition operator", &self.rest[..length]));
            }
        };
        let operator = self.take(length).to_owned();
        self.out.push_str(&operator);
        self.item = next;
        Ok(())
    }

    fn counted(&mut self, length: usize) -> Result<(), RegexError> {
        let counts = &self.rest[1..length - 1];
        let numbers: Vec<Option<u32>> = counts.split(',').map(|count| count.parse().ok()).collect();
        let too_large =
            counts.split(',').any(|count| !count.is_empty() && count.parse::<u32>().map_or(true, |n| n > MAX_REPEAT));
        let reversed = matches!(numbers[..], [Some(low), Some(high)] if low > high);
        if too_large || reversed {
            return Err(RegexError::new("invalid repeat count", &self.rest[..length]));
        }
        self.repeat(length)
    }

    fn escape(&mut self) -> Result<(), RegexError> {
        self.item = Item::Atom;
        if let Some(quoted) = self.rest.strip_prefix("\\Q") {
            let end = quoted.find("\\E").unwrap_or(quoted.len());
            quoted[..end].chars().for_each(|char| push_literal(&mut self.out, char));
            self.rest = quoted[end..].strip_prefix("\\E").unwrap_or("");
            return Ok(());
        }
        let (text, length) = match self.rest.as_bytes().get(1) {
            Some(b'd') => ("[0-9]", 2),
            Some(b'D') => ("[^0-9]", 2),
            Some(b's') => ("[\\t\\n\\x0c\\r ]", 2),
            Some(b'S') => ("[^\\t\\n\\x0c\\r ]", 2),
            Some(b'w') => ("[0-9A-Za-z_]", 2),
            Some(b'W') => ("[^0-9A-Za-z_]", 2),
            Some(b'b') => ("(?-u:\\b)", 2),
            Some(b'B') => ("\\B", 2),
            Some(b'A') => ("\\A", 2),
            Some(b'z') => ("\\z", 2),
            _ => {
                let (escaped, length) = read_escape(self.rest)?;
                self.out.push_str(&escaped);
                self.take(length);
                return Ok(());
            }
        };
        self.take(length);
        self.out.push_str(text);
        Ok(())
    }

    fn class(&mut self) -> Result<(), RegexError> {
        let whole = self.rest;
        self.item = Item::Atom;
        let negated = self.rest.starts_with("[^");
        self.take(1 + usize::from(negated));
        self.out.push_str(if negated { "[^" } else { "[" });
        let mut first = true;
        while first || !self.rest.starts_with(']') {
            if self.rest.is_empty() {
                return Err(RegexError::new("missing closing ]", whole));
            }
            self.class_item()?;
            first = false;
        }
        self.take(1);
        self.out.push(']');
        Ok(())
    }

    fn class_item(&mut self) -> Result<(), RegexError> {
        if self.rest.starts_with("[:")
            && let Some(end) = self.rest.find(":]")
        {
            let named = self.take(end + 2).to_owned();
            self.out.push_str(&named);
            return Ok(());
        }
        let shorthand = match self.rest.as_bytes() {
            [b'\\', b'd', ..] => "0-9",
            [b'\\', b'D', ..] => "[^0-9]",
            [b'\\', b's', ..] => "\\t\\n\\x0c\\r ",
            [b'\\', b'S', ..] => "[^\\t\\n\\x0c\\r ]",
            [b'\\', b'w', ..] => "0-9A-Za-z_",
            [b'\\', b'W', ..] => "[^0-9A-Za-z_]",
            _ => return self.class_range(),
        };
        self.out.push_str(shorthand);
        self.take(2);
        Ok(())
    }

    /// A character, or a range of them.
    fn class_range(&mut self) -> Result<(), RegexError> {
        let whole = self.rest;
        let low = self.class_char()?;
        let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]") && self.rest.len() > 1;
        if !is_range {
            self.out.push_str(&low.0);
            return Ok(());
        }
        self.take(1);
        let high = self.class_char()?;
        let length = whole.len() - self.rest.len();
        match (low.1, high.1) {
            (Some(a), Some(b)) if a <= b => {
                self.out.push_str(&format!("{}-{}", low.0, high.0));
                Ok(())
            }
            _ => Err(RegexError::new("invalid character class range", &whole[..length])),
        }
    }

    /// A character of a class with its escape; classes such as `\pL` have none.
    fn class_char(&mut self) -> Result<(String, Option<char>), RegexError> {
        let Some(char) = self.rest.chars().next() else {
            return Err(RegexError::new("missing closing ]", self.pattern));
        };
        if char == '\\' {
            let (escaped, length) = read_escape(self.rest)?;
            let value = escaped.strip_prefix("\\x{").and_then(|hex| hex.strip_suffix('}'));
            let value = value.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32);
            self.take(length);
            return Ok((escaped, value));
        }
        self.take(char.len_utf8());
        let mut out = String::new();
        push_literal(&mut out, char);
        Ok((out, Some(char)))
    }
}

/// The length of `{2}`, `{2,}` or `{2,3}` at the start.
fn repetition(text: &str) -> Option<usize> {
    let end = text.find('}')?;
    let (low, high) = text[1..end].split_once(',').unwrap_or((&text[1..end], "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(low) && (high.is_empty() || is_number(high))).then_some(end + 1)
}

fn push_literal(out: &mut String, char: char) {
    if char.is_alphanumeric() || char == ' ' || char == '_' {
        out.push(char);
    } else {
        out.push_str(&format!("\\x{{{:x}}}", char as u32));
    }
}

/// An escape of one character or of a class of Unicode, and its length.
fn read_escape(text: &str) -> Result<(String, usize), RegexError> {
    let Some(letter) = text[1..].chars().next() else {
        return Err(RegexError::new("trailing backslash at end of expression", ""));
    };
    let invalid = |length: usize| Err(RegexError::new("invalid escape sequence", text.get(..length).unwrap_or(text)));
    let code = match letter {
        'a' => 7,
        'f' => 12,
        't' => 9,
        'n' => 10,
        'r' => 13,
        'v' => 11,
        'x' => return read_hex(text),
        'p' | 'P' => return read_unicode_class(text),
        '0'..='7' => {
            let digits = text[1..].bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            if letter != '0' && digits == 1 {
                return invalid(2);
            }
            let value = u32::from_str_radix(&text[1..=digits], 8).unwrap_or(0);
            return Ok((format!("\\x{{{value:x}}}"), 1 + digits));
        }
        _ if letter.is_ascii_punctuation() => letter as u32,
        _ => return invalid(1 + letter.len_utf8()),
    };
    Ok((format!("\\x{{{code:x}}}"), 1 + letter.len_utf8()))
}

fn read_hex(text: &str) -> Result<(String, usize), RegexError> {
    let (digits, length) = match text[2..].strip_prefix('{') {
        Some(rest) => {
            let end = rest.find('}').unwrap_or(rest.len());
            (&rest[..end], end + 4)
        }
        None => (text.get(2..4).unwrap_or(""), 4),
    };
    let value = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
    match value.filter(|_| text.len() >= length) {
        Some(char) => Ok((format!("\\x{{{:x}}}", char as u32), length)),
        None => Err(RegexError::new("invalid escape sequence", text.get(..length.min(text.len())).unwrap_or(text))),
    }
}

/// `\pL`, `\p{Greek}`, `\P{^Lu}`.
fn read_unicode_class(text: &str) -> Result<(String, usize), RegexError> {
    let length = match text[2..].strip_prefix('{') {
        Some(rest) => rest.find('}').map_or(text.len(), |end| end + 4),
        None => 2 + text[2..].chars().next().map_or(0, char::len_utf8),
    };
    let class = &text[..length];
    let is_valid = length > 2 && syntax_accepts(class);
    if is_valid { Ok((class.to_owned(), length)) } else { Err(RegexError::new("invalid character class range", class)) }
}

fn syntax_accepts(class: &str) -> bool {
    regex_automata::util::syntax::parse(class).is_ok()
}

#[cfg(test)]
mod tests {
    use crate::library::regex::Regex;
    use crate::value::CostTracker;

    #[test]
    fn translates_the_differences() {
        let tracker = CostTracker::without_cost_limit();
        let cases = [
            (r"^\d$", "٣", false),
            (r"^\d$", "3", true),
            (r"^\w+$", "é", false),
            (r"^a{,2}$", "a{,2}", true),
            (r"^[a&&b]$", "&", true),
            (r"^[[]$", "[", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\<\>$", "<>", true),
            (r"(?i)^ABC$", "abc", true),
            (r"^\pL+$", "é", true),
            (r"^\p{Greek}$", "α", true),
            (r"^[\d\-x]+$", "1-x", true),
            (r"^\141$", "a", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^x{2,3}$", "xx", true),
            (r"a.c", "a\nc", false),
        ];
        for (pattern, text, expected) in cases {
            let regex = Regex::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(regex.is_match(text, &tracker), Ok(expected), "{pattern} {text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        let cases = [
            ("[", "missing closing ]: `[`"),
            ("(", "missing closing ): `(`"),
            ("a)", "unexpected ): `a)`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a**", "invalid nested repetition operator: `*`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("\\y", "invalid escape sequence: `\\y`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
            ("a\\", "trailing backslash at end of expression: ``"),
        ];
        for (pattern, message) in cases {
            let error = Regex::new(pattern).err().map(|error| error.to_string());
            assert_eq!(error, Some(format!("error parsing regexp: {message}")), "{pattern}");
        }
    }
}
