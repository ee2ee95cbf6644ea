//! One value with a verb and its flags.

use api::{Map, Tree};

use super::{float, text};
use crate::value::Data;

#[derive(Debug, Clone, Default)]
pub(super) struct Flags {
    pub(super) width: Option<usize>,
    pub(super) precision: Option<usize>,
    pub(super) minus: bool,
    pub(super) plus: bool,
    pub(super) sharp: bool,
    pub(super) space: bool,
    pub(super) zero: bool,
    /// `%+v`.
    pub(super) plus_v: bool,
    /// `%#v`.
    pub(super) sharp_v: bool,
}

#[derive(Debug, Default)]
pub(super) struct Printer {
    pub(super) out: Vec<u8>,
    pub(super) flags: Flags,
}

impl Printer {
    pub(super) fn one(data: &Data, verb: char) -> Vec<u8> {
        let mut printer = Printer::default();
        printer.print(data, verb);
        printer.out
    }

    /// An operand.
    pub(super) fn print(&mut self, data: &Data, verb: char) {
        match (data, verb) {
            (Data::Nil | Data::Invalid, 'v' | 'T') => self.pad(b"<nil>"),
            (_, 'T') => {
                self.print_text(data.type_name().as_bytes(), 's');
            }
            _ => self.print_value(data, verb),
        }
    }

    fn print_value(&mut self, data: &Data, verb: char) {
        let flags = self.flags.clone();
        let is_known = match data {
            Data::Nil | Data::Invalid => false,
            Data::Bool(value) => self.print_bool(*value, verb),
            Data::Int(value) | Data::Int64(value) => self.print_integer(*value, true, verb),
            Data::Byte(value) => self.print_integer((*value).into(), false, verb),
            Data::Float(value) => self.print_float(*value, verb),
            Data::Complex(real, imaginary) => self.print_complex(*real, *imaginary, verb),
            Data::Text(text) => self.print_text(text, verb),
            Data::List(items) => {
                self.print_list(items, verb);
                true
            }
            Data::Map(map) => {
                self.print_map(map, verb);
                true
            }
        };
        self.flags = flags;
        if !is_known {
            self.print_bad_verb(data, verb);
        }
    }

    /// `%!d(string=text)`.
    fn print_bad_verb(&mut self, data: &Data, verb: char) {
        self.out.extend_from_slice(format!("%!{verb}(").as_bytes());
        match data {
            Data::Nil | Data::Invalid => self.out.extend_from_slice(b"<nil>"),
            data => {
                self.out.extend_from_slice(format!("{}=", data.type_name()).as_bytes());
                self.print_value(data, 'v');
            }
        }
        self.out.push(b')');
    }

    fn print_item(&mut self, tree: &Tree, verb: char) {
        match tree {
            Tree::Null if self.flags.sharp_v => self.out.extend_from_slice(b"interface {}(nil)"),
            Tree::Null => self.out.extend_from_slice(b"<nil>"),
            tree => self.print_value(&Data::of(tree), verb),
        }
    }

    fn print_list(&mut self, items: &[Tree], verb: char) {
        let syntax = self.flags.sharp_v;
        self.out.extend_from_slice(if syntax { b"[]interface {}{" } else { b"[" });
        for (at, item) in items.iter().enumerate() {
            self.separate(at);
            self.print_item(item, verb);
        }
        self.out.push(if syntax { b'}' } else { b']' });
    }

    fn print_map(&mut self, map: &Map, verb: char) {
        let syntax = self.flags.sharp_v;
        self.out.extend_from_slice(if syntax { b"map[string]interface {}{" } else { b"map[" });
        for (at, (key, value)) in map.iter().enumerate() {
            self.separate(at);
            self.print_value(&Data::Text(key.as_bytes().into()), verb);
            self.out.push(b':');
            self.print_item(value, verb);
        }
        self.out.push(if syntax { b'}' } else { b']' });
    }

    fn separate(&mut self, at: usize) {
        if at > 0 {
            self.out.extend_from_slice(if self.flags.sharp_v { b", " } else { b" " });
        }
    }

    fn print_bool(&mut self, value: bool, verb: char) -> bool {
        if !matches!(verb, 't' | 'v') {
            return false;
        }
        self.pad(if value { b"true" } else { b"false" });
        true
    }

    fn print_float(&mut self, value: f64, verb: char) -> bool {
        match verb {
            'v' => self.write_float(value, 'g', None),
            'b' | 'g' | 'G' | 'x' | 'X' => self.write_float(value, verb, None),
            'f' | 'e' | 'E' => self.write_float(value, verb, Some(6)),
            'F' => self.write_float(value, 'f', Some(6)),
            _ => return false,
        }
        true
    }

    fn print_complex(&mut self, real: f64, imaginary: f64, verb: char) -> bool {
        if !"vbgGxXfFeE".contains(verb) {
            return false;
        }
        self.out.push(b'(');
        self.print_float(real, verb);
        self.flags.plus = true;
        self.print_float(imaginary, verb);
        self.out.extend_from_slice(b"i)");
        true
    }

    fn write_float(&mut self, value: f64, verb: char, precision: Option<usize>) {
        let flags = self.flags.clone();
        let precision = flags.precision.or(precision);
        let text = float::format(value, verb, precision);
        let (sign, mut number) = match text.strip_prefix(['-', '+']) {
            Some(number) => (if text.starts_with('-') { '-' } else { '+' }, number.to_string()),
            None => ('+', text),
        };
        let sign = if flags.space && sign == '+' && !flags.plus { ' ' } else { sign };
        if !value.is_finite() {
            let is_bare = value.is_nan() && !flags.space && !flags.plus || sign == '+' && !flags.plus && value.is_nan();
            let text = if is_bare { number } else { format!("{sign}{number}") };
            return self.with_spaces(|printer| printer.pad(text.as_bytes()));
        }
        if flags.sharp && verb != 'b' {
            number = keep_zeros(number, verb, precision);
        }
        if !flags.plus && sign == '+' {
            return self.pad(number.as_bytes());
        }
        let text = format!("{sign}{number}");
        match flags.width {
            Some(width) if flags.zero && !flags.minus && width > text.len() => {
                let zeros = "0".repeat(width - text.len());
                self.out.extend_from_slice(format!("{sign}{zeros}{number}").as_bytes());
            }
            _ => self.pad(text.as_bytes()),
        }
    }

    /// Pads with spaces instead of zeros.
    pub(super) fn with_spaces(&mut self, run: impl FnOnce(&mut Printer)) {
        let zero = std::mem::replace(&mut self.flags.zero, false);
        run(self);
        self.flags.zero = zero;
    }

    /// Appends a text, padded to the width.
    pub(super) fn pad(&mut self, text: &[u8]) {
        if self.flags.width.is_none() {
            return self.out.extend_from_slice(text);
        }
        let missing = self.flags.width.unwrap_or(0).saturating_sub(text::count_chars(text));
        let fill = if self.flags.zero && !self.flags.minus { b'0' } else { b' ' };
        if !self.flags.minus {
            self.out.resize(self.out.len() + missing, fill);
        }
        self.out.extend_from_slice(text);
        if self.flags.minus {
            self.out.resize(self.out.len() + missing, fill);
        }
    }
}

/// The flag # keeps the point, and the zeros of `%g`.
fn keep_zeros(number: String, verb: char, precision: Option<usize>) -> String {
    let mut missing = match verb {
        'g' | 'G' | 'x' | 'X' => precision.unwrap_or(6) as i64,
        _ => 0,
    };
    let is_exponent = |c: char| matches!(c, 'p' | 'P') || (matches!(c, 'e' | 'E') && !matches!(verb, 'x' | 'X'));
    let tail_at = number.find(is_exponent).unwrap_or(number.len());
    let (digits, tail) = number.split_at(tail_at);
    let significant = digits.trim_start_matches(['0', '.']);
    missing -= significant.bytes().filter(|byte| *byte != b'.').count() as i64;
    let mut out = digits.to_string();
    if !out.contains('.') {
        if out == "0" {
            missing -= 1;
        }
        out.push('.');
    }
    out.extend(std::iter::repeat_n('0', usize::try_from(missing).unwrap_or(0)));
    out + tail
}
