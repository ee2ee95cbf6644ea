//! Formats: directives with flags, width, precision and argument indexes.

use super::check_length;
use super::verbs::{Flags, Printer};
use crate::error::CallError;
use crate::value::Data;

/// Go rejects larger widths and precisions.
const MAX_WIDTH: usize = 1_000_000;

pub(super) fn printf(format: &str, args: &[Data]) -> Result<Vec<u8>, CallError> {
    let mut directives = Directives {
        format,
        at: 0,
        args,
        next: 0,
        is_reordered: false,
        is_good_index: true,
        printer: Printer::default(),
    };
    while directives.run_one() {
        check_length(&directives.printer)?;
    }
    directives.write_extra()?;
    Ok(directives.printer.out)
}

struct Directives<'f, 'd> {
    format: &'f str,
    at: usize,
    args: &'f [Data<'d>],
    /// The argument of the next directive.
    next: usize,
    is_reordered: bool,
    is_good_index: bool,
    printer: Printer,
}

impl Directives<'_, '_> {
    fn rest(&self) -> &str {
        &self.format[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.format.as_bytes().get(self.at).copied()
    }

    fn write(&mut self, text: &str) {
        self.printer.out.extend_from_slice(text.as_bytes());
    }

    /// The text up to a directive, and the directive; false at the end.
    fn run_one(&mut self) -> bool {
        let length = self.rest().find('%').unwrap_or(self.rest().len());
        let text = self.rest()[..length].to_string();
        self.write(&text);
        self.at += length;
        if self.at >= self.format.len() {
            return false;
        }
        self.at += 1;
        self.is_good_index = true;
        self.printer.flags = Flags::default();
        self.parse_flags();
        let mut after_index = self.parse_index();
        after_index = self.parse_width(after_index);
        after_index = self.parse_precision(after_index);
        if !after_index {
            self.parse_index();
        }
        let Some(verb) = self.rest().chars().next() else {
            self.write("%!(NOVERB)");
            return false;
        };
        self.at += verb.len_utf8();
        self.print_argument(verb);
        true
    }

    fn parse_flags(&mut self) {
        while let Some(byte) = self.peek() {
            let flags = &mut self.printer.flags;
            match byte {
                b'#' => flags.sharp = true,
                b'0' => flags.zero = true,
                b'+' => flags.plus = true,
                b'-' => flags.minus = true,
                b' ' => flags.space = true,
                _ => break,
            }
            self.at += 1;
        }
    }

    /// `[2]`; whether there was an index.
    fn parse_index(&mut self) -> bool {
        if self.peek() != Some(b'[') {
            return false;
        }
        self.is_reordered = true;
        let Some(end) = self.rest().find(']').filter(|_| self.rest().len() >= 3) else {
            self.at += 1;
            self.is_good_index = false;
            return false;
        };
        let inside = &self.rest()[1..end];
        let index = inside.parse::<usize>().ok().filter(|index| *index <= MAX_WIDTH && !inside.starts_with('+'));
        self.at += end + 1;
        match index {
            Some(index) if (1..=self.args.len()).contains(&index) => self.next = index - 1,
            _ => self.is_good_index = false,
        }
        index.is_some()
    }

    fn parse_number(&mut self) -> Option<usize> {
        let length = self.rest().find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest().len());
        if length == 0 {
            return None;
        }
        let number = self.rest()[..length].parse::<usize>().ok().filter(|number| *number <= MAX_WIDTH);
        // Go ends the format at a number that is too large.
        self.at = if number.is_some() { self.at + length } else { self.format.len() };
        number
    }

    /// The next argument as a width or a precision.
    fn number_argument(&mut self) -> Option<i64> {
        let argument = self.args.get(self.next)?;
        self.next += 1;
        argument.as_int().filter(|number| number.unsigned_abs() <= MAX_WIDTH as u64)
    }

    fn parse_width(&mut self, after_index: bool) -> bool {
        if self.peek() != Some(b'*') {
            self.printer.flags.width = self.parse_number();
            if after_index && self.printer.flags.width.is_some() {
                self.is_good_index = false;
            }
            return after_index;
        }
        self.at += 1;
        match self.number_argument() {
            None => self.write("%!(BADWIDTH)"),
            Some(width) => {
                let flags = &mut self.printer.flags;
                flags.width = Some(width.unsigned_abs() as usize);
                if width < 0 {
                    flags.minus = true;
                    flags.zero = false;
                }
            }
        }
        false
    }

    fn parse_precision(&mut self, after_index: bool) -> bool {
        if self.peek() != Some(b'.') {
            return after_index;
        }
        self.at += 1;
        if after_index {
            self.is_good_index = false;
        }
        let after_index = self.parse_index();
        if self.peek() != Some(b'*') {
            self.printer.flags.precision = Some(self.parse_number().unwrap_or(0));
            return after_index;
        }
        self.at += 1;
        match self.number_argument().and_then(|precision| usize::try_from(precision).ok()) {
            None => self.write("%!(BADPREC)"),
            precision => self.printer.flags.precision = precision,
        }
        false
    }

    fn print_argument(&mut self, verb: char) {
        if verb == '%' {
            return self.write("%");
        }
        if !self.is_good_index {
            return self.write(&format!("%!{verb}(BADINDEX)"));
        }
        let Some(argument) = self.args.get(self.next) else {
            return self.write(&format!("%!{verb}(MISSING)"));
        };
        self.next += 1;
        if verb == 'v' {
            let flags = &mut self.printer.flags;
            flags.sharp_v = std::mem::take(&mut flags.sharp);
            flags.plus_v = std::mem::take(&mut flags.plus);
        }
        self.printer.print(argument, verb);
    }

    /// Arguments that no directive used.
    fn write_extra(&mut self) -> Result<(), CallError> {
        if self.is_reordered || self.next >= self.args.len() {
            return Ok(());
        }
        self.printer.flags = Flags::default();
        self.write("%!(EXTRA ");
        for (at, argument) in self.args[self.next..].iter().enumerate() {
            if at > 0 {
                self.write(", ");
            }
            if !matches!(argument, Data::Nil | Data::Invalid) {
                self.write(&format!("{}=", argument.type_name()));
            }
            self.printer.print(argument, 'v');
            check_length(&self.printer)?;
        }
        self.write(")");
        Ok(())
    }
}
