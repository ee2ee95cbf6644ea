//! Integers in all bases, and as characters.

use super::verbs::Printer;

impl Printer {
    pub(super) fn print_integer(&mut self, value: i64, is_signed: bool, verb: char) -> bool {
        match verb {
            'v' if self.flags.sharp_v && !is_signed => {
                self.flags.sharp = true;
                self.write_integer(value, 16, verb);
            }
            'v' | 'd' => self.write_integer(value, 10, verb),
            'b' => self.write_integer(value, 2, verb),
            'o' | 'O' => self.write_integer(value, 8, verb),
            'x' | 'X' => self.write_integer(value, 16, verb),
            'c' => self.pad(character(value).encode_utf8(&mut [0; 4]).as_bytes()),
            'q' => self.write_quoted_char(character(value)),
            'U' => self.write_unicode(value),
            _ => return false,
        }
        true
    }

    fn write_integer(&mut self, value: i64, base: u32, verb: char) {
        let flags = self.flags.clone();
        let mut precision = 0;
        if let Some(wanted) = flags.precision {
            precision = wanted;
            if wanted == 0 && value == 0 {
                // Nothing but padding.
                return self.with_spaces(|printer| printer.pad(b""));
            }
        } else if flags.zero && !flags.minus {
            let sign = usize::from(value < 0 || flags.plus || flags.space);
            precision = flags.width.unwrap_or(0).saturating_sub(sign);
        }
        let mut digits = digits(value.unsigned_abs(), base, verb == 'X');
        if digits.len() < precision {
            digits.insert_str(0, &"0".repeat(precision - digits.len()));
        }
        let prefix = match (base, verb) {
            (_, 'O') => "0o",
            (2, _) if flags.sharp => "0b",
            (8, _) if flags.sharp && !digits.starts_with('0') => "0",
            (16, 'X') if flags.sharp => "0X",
            (16, _) if flags.sharp => "0x",
            _ => "",
        };
        let sign = match value {
            ..0 => "-",
            _ if flags.plus => "+",
            _ if flags.space => " ",
            _ => "",
        };
        let prefix = if verb == 'O' && flags.sharp && !digits.starts_with('0') { "0o0" } else { prefix };
        self.with_spaces(|printer| printer.pad(format!("{sign}{prefix}{digits}").as_bytes()));
    }

    fn write_quoted_char(&mut self, c: char) {
        let quoted = super::text::quote_char(c, self.flags.plus);
        self.pad(quoted.as_bytes());
    }

    /// `U+0078`, and `U+0078 'x'` with the flag #.
    fn write_unicode(&mut self, value: i64) {
        let width = self.flags.precision.filter(|precision| *precision > 4).unwrap_or(4);
        let mut text = format!("U+{:0width$X}", value);
        if self.flags.sharp
            && let Some(c) = u32::try_from(value).ok().and_then(char::from_u32)
            && super::text::is_printable(c)
        {
            text.push_str(&format!(" '{c}'"));
        }
        self.with_spaces(|printer| printer.pad(text.as_bytes()));
    }
}

fn character(value: i64) -> char {
    u32::try_from(value).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn digits(value: u64, base: u32, upper: bool) -> String {
    match (base, upper) {
        (2, _) => format!("{value:b}"),
        (8, _) => format!("{value:o}"),
        (16, true) => format!("{value:X}"),
        (16, false) => format!("{value:x}"),
        _ => value.to_string(),
    }
}
