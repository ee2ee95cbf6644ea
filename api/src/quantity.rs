//! Quantities: exact decimal and binary numbers with upstream's canonical form. A value is `value * 10^scale` with 38
//! digits, which covers every sum of exa- and nano-units; numbers with more digits are rejected.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{AddAssign, Neg, SubAssign};

use crate::tree::Str;

pub(crate) const BAD_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// The precision of a quantity; smaller values are rounded up.
const NANO: i64 = -9;
/// Larger exponents are meaningless and would make additions inexact.
const MAX_EXPONENT: i64 = 1000;

/// Text that is not a quantity, with upstream's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{BAD_FORMAT}")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The form in which a quantity is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySI,
    /// `12M`
    #[default]
    DecimalSI,
}

/// A number with a suffix, such as `1.5Gi` or `100m`.
#[derive(Debug, Clone, Default)]
pub struct Quantity {
    value: i128,
    scale: i32,
    format: Format,
    /// The original text if upstream considers it canonical (such as `1.500` and `+1`).
    text: Option<Str>,
}

/// The canonical text of a quantity.
pub fn canonical(text: &str) -> Result<Str, Error> {
    let quantity = Quantity::parse(text.trim())?;
    Ok(match quantity.text {
        Some(text) => text,
        None => Str::from(quantity.to_string()),
    })
}

/// Constructors.
impl Quantity {
    /// A whole number.
    pub fn new(value: i64, format: Format) -> Quantity {
        Quantity { value: value.into(), scale: 0, format, text: None }
    }

    /// A number of thousandths.
    pub fn milli(value: i64, format: Format) -> Quantity {
        Quantity { value: value.into(), scale: -3, format, text: None }
    }

    /// Parses upstream's notation.
    pub fn parse(text: &str) -> Result<Quantity, Error> {
        if text.is_empty() {
            return Err(Error::Format);
        }
        let parts = split(text)?;
        match read_suffix(parts.suffix).ok_or(Error::Suffix)? {
            Suffix::Ten(exponent, format) => decimal(text, &parts, exponent, format),
            Suffix::Two(exponent) => binary(text, &parts, exponent),
        }
    }
}

/// Accessors.
impl Quantity {
    /// The format of the parsed text.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether the value is 0.
    pub fn is_zero(&self) -> bool {
        self.value == 0
    }

    /// Whether the value is below 0.
    pub fn is_negative(&self) -> bool {
        self.value < 0
    }

    /// The integer value, if it is exact and fits.
    pub fn as_int(&self) -> Option<i64> {
        self.scaled_exact(0).and_then(|value| i64::try_from(value).ok())
    }

    /// Rounded up to an integer (away from zero) and clamped to 64 bits.
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// In thousandths, rounded up and clamped to 64 bits.
    pub fn milli_value(&self) -> i64 {
        self.scaled(-3)
    }

    /// In units of `10^scale`, rounded up and clamped to 64 bits.
    pub fn scaled(&self, scale: i32) -> i64 {
        let value = match pow10(i64::from(self.scale) - i64::from(scale)) {
            Some(power) => self.value.saturating_mul(power),
            None if self.scale > scale => saturated(self.value),
            None => divide_up(self.value, i64::from(scale) - i64::from(self.scale)),
        };
        i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
    }

    /// The nearest floating-point number.
    pub fn as_f64(&self) -> f64 {
        self.value as f64 * 10f64.powi(self.scale)
    }

    fn scaled_exact(&self, scale: i32) -> Option<i128> {
        match pow10(i64::from(self.scale) - i64::from(scale)) {
            Some(power) => self.value.checked_mul(power),
            None if self.value == 0 => Some(0),
            None => {
                let power = pow10(i64::from(scale) - i64::from(self.scale))?;
                (self.value % power == 0).then_some(self.value / power)
            }
        }
    }
}

/// Arithmetic. Zero takes the format of the other operand, as in upstream.
impl AddAssign<&Quantity> for Quantity {
    fn add_assign(&mut self, other: &Quantity) {
        if self.is_zero() {
            self.format = other.format;
        }
        (self.value, self.scale) = sum((self.value, self.scale), (other.value, other.scale));
        self.text = None;
    }
}

impl SubAssign<&Quantity> for Quantity {
    fn sub_assign(&mut self, other: &Quantity) {
        *self += &-other.clone();
    }
}

impl Neg for Quantity {
    type Output = Quantity;

    fn neg(mut self) -> Quantity {
        self.value = -self.value;
        self.text = None;
        self
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        match align((self.value, self.scale), (other.value, other.scale)) {
            Aligned::Same(a, b, _) => a.cmp(&b),
            Aligned::FirstLarger => self.value.cmp(&0),
            Aligned::SecondLarger => 0.cmp(&other.value),
        }
    }
}

enum Aligned {
    Same(i128, i128, i32),
    /// So much larger that the two have no common scale.
    FirstLarger,
    SecondLarger,
}

fn align(a: (i128, i32), b: (i128, i32)) -> Aligned {
    if a.1 < b.1 {
        return match align(b, a) {
            Aligned::Same(b, a, scale) => Aligned::Same(a, b, scale),
            Aligned::FirstLarger => Aligned::SecondLarger,
            Aligned::SecondLarger => Aligned::FirstLarger,
        };
    }
    if a.0 == 0 {
        return Aligned::Same(0, b.0, b.1);
    }
    match pow10(i64::from(a.1) - i64::from(b.1)).and_then(|power| a.0.checked_mul(power)) {
        Some(value) => Aligned::Same(value, b.0, b.1),
        None => Aligned::FirstLarger,
    }
}

fn sum(a: (i128, i32), b: (i128, i32)) -> (i128, i32) {
    match align(a, b) {
        Aligned::Same(x, y, scale) => (x.saturating_add(y), scale),
        Aligned::FirstLarger => a,
        Aligned::SecondLarger => b,
    }
}

/// None for negative powers and for those beyond 38 digits.
fn pow10(power: i64) -> Option<i128> {
    u32::try_from(power).ok().and_then(|power| 10i128.checked_pow(power))
}

fn saturated(value: i128) -> i128 {
    match value {
        0 => 0,
        value if value < 0 => i128::MIN,
        _ => i128::MAX,
    }
}

/// Divides by `10^power`, rounding away from zero.
fn divide_up(value: i128, power: i64) -> i128 {
    match pow10(power) {
        Some(divisor) => value / divisor + (value % divisor).signum(),
        None => value.signum(),
    }
}

/// A split quantity: `-1.5Gi`.
struct Parts<'a> {
    negative: bool,
    /// Without leading zeros; "0" if there is nothing else.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Result<Parts<'_>, Error> {
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text).trim_start_matches('0');
    let (whole, rest) = split_digits(rest);
    let whole = if whole.is_empty() { "0" } else { whole };
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    let exponent = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    match split_digits(exponent) {
        (_, "") => Ok(Parts { negative, whole, fraction, suffix }),
        _ => Err(Error::Format),
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

enum Suffix {
    Ten(i64, Format),
    Two(u32),
}

const SI: [(&str, i64); 10] =
    [("", 0), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18), ("u", -6), ("n", -9)];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

fn read_suffix(suffix: &str) -> Option<Suffix> {
    if let Some((_, exponent)) = SI.iter().find(|(name, _)| *name == suffix) {
        return Some(Suffix::Ten(*exponent, Format::DecimalSI));
    }
    if let Some(place) = BINARY.iter().position(|name| *name == suffix) {
        return Some(Suffix::Two(place as u32 * 10));
    }
    let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (exponent <= MAX_EXPONENT).then(|| Suffix::Ten(exponent.max(i64::from(i32::MIN)), Format::DecimalExponent))
}

fn decimal(text: &str, parts: &Parts<'_>, exponent: i64, format: Format) -> Result<Quantity, Error> {
    let digits = || parts.whole.bytes().chain(parts.fraction.bytes());
    let count = parts.whole.len() + parts.fraction.len();
    let scale = exponent - parts.fraction.len() as i64;
    if count <= 18 && scale >= NANO {
        let value = digits().fold(0, |value, digit| value * 10 + i128::from(digit - b'0'));
        let canonical = scale % 3 == 0 && value % 1000 != 0 && !parts.whole.starts_with('0');
        return Ok(Quantity {
            value: signed(value, parts),
            scale: scale as i32,
            format,
            text: canonical.then(|| Str::new(text)),
        });
    }
    let dropped = usize::try_from(NANO - scale).unwrap_or(0);
    let kept = count.saturating_sub(dropped);
    let zeros = if dropped > 0 { 0 } else { digits().rev().take_while(|digit| *digit == b'0').count() };
    let mut value = digits().take(kept - zeros.min(kept)).try_fold(0i128, push_digit).ok_or(Error::Numeric)?;
    if digits().skip(kept).any(|digit| digit != b'0') {
        value += 1;
    }
    let scale = if dropped > 0 { NANO } else { scale + zeros as i64 };
    let scale = if value == 0 { 0 } else { i32::try_from(scale).map_err(|_| Error::Numeric)? };
    Ok(Quantity { value: signed(value, parts), scale, format, text: None })
}

fn push_digit(value: i128, digit: u8) -> Option<i128> {
    value.checked_mul(10)?.checked_add(i128::from(digit - b'0')).filter(|value| *value < i128::MAX)
}

fn signed(value: i128, parts: &Parts<'_>) -> i128 {
    if parts.negative { -value } else { value }
}

fn binary(text: &str, parts: &Parts<'_>, exponent: u32) -> Result<Quantity, Error> {
    let format = Format::BinarySI;
    let whole = parts.whole.bytes().try_fold(0i128, push_digit).unwrap_or(i128::MAX);
    if parts.fraction.is_empty() && parts.whole.len() as u32 + exponent * 3 / 10 <= 14 {
        let text = (whole & 7 != 0).then(|| Str::new(text));
        return Ok(Quantity { value: signed(whole << exponent, parts), scale: 0, format, text });
    }
    const CAP: i128 = i64::MAX as i128;
    let whole = whole.saturating_mul(1 << exponent);
    if whole >= CAP {
        return Ok(Quantity { value: signed(CAP, parts), scale: 0, format, text: None });
    }
    let nano = whole * 1_000_000_000 + binary_fraction(parts.fraction, exponent);
    if nano % 1_000_000_000 == 0 {
        let value = (nano / 1_000_000_000).min(CAP);
        return Ok(Quantity { value: signed(value, parts), scale: 0, format, text: None });
    }
    // Values below one unit are printed in decimal, to avoid confusion.
    let format = if nano < 1_000_000_000 { Format::DecimalSI } else { format };
    Ok(Quantity { value: signed(nano, parts), scale: NANO as i32, format, text: None })
}

/// `0.fraction * 2^exponent` in nano-units, rounded up. Eighteen digits are exact.
fn binary_fraction(fraction: &str, exponent: u32) -> i128 {
    let mut digits = fraction.bytes().chain(std::iter::repeat(b'0'));
    let value = digits.by_ref().take(18).fold(0i128, |value, digit| value * 10 + i128::from(digit - b'0'));
    let product = value << exponent;
    let more = product % 1_000_000_000 != 0 || fraction.bytes().skip(18).any(|digit| digit != b'0');
    product / 1_000_000_000 + i128::from(more)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.format == Format::BinarySI
            && let Some(value) = self.scaled_exact(0)
            && value.abs() >= 1024
        {
            return write_binary(f, value);
        }
        write_decimal(f, self.value, self.scale, self.format == Format::DecimalExponent)
    }
}

fn write_binary(f: &mut fmt::Formatter<'_>, mut value: i128) -> fmt::Result {
    let mut place = 0;
    while value % 1024 == 0 && place < BINARY.len() - 1 {
        value /= 1024;
        place += 1;
    }
    write!(f, "{value}{}", BINARY[place])
}

fn write_decimal(f: &mut fmt::Formatter<'_>, mut value: i128, mut scale: i32, exponent: bool) -> fmt::Result {
    while value % 10 == 0 {
        value /= 10;
        scale += 1;
    }
    let zeros = scale.rem_euclid(3);
    scale -= zeros;
    write!(f, "{value}{}", &"00"[..zeros as usize])?;
    match SI.iter().find(|(_, power)| *power == i64::from(scale)) {
        Some((name, _)) if !exponent || scale == 0 => f.write_str(name),
        _ => write!(f, "e{scale}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_canonical() {
        let cases = [
            ("0", "0"),
            ("0Ki", "0"),
            ("00", "0"),
            ("-0", "0"),
            (".", "0"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1.5", "1500m"),
            ("1.500", "1.500"),
            ("+1", "+1"),
            ("1000", "1k"),
            ("100000", "100k"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1Ei", "1Ei"),
            ("10Ei", "9223372036854775807"),
            ("0.0001Ki", "102400u"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("1e4", "10e3"),
            ("100e-3", "100e-3"),
            ("1e-10", "1e-9"),
            ("0.1n", "1n"),
            ("-0.1n", "-1n"),
            ("1.0000000001", "1000000001n"),
            ("0.1234567890123456789012345678901234567890123", "123456790n"),
            ("123456789012345678901234", "123456789012345678901234"),
            ("1000000000000000000000000", "1e24"),
            ("5m", "5m"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("-1.5", "-1500m"),
            (" 12Mi ", "12Mi"),
        ];
        for (text, want) in cases {
            assert_eq!(canonical(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn errors_match_upstream_quantities() {
        let cases = [
            ("", Error::Format),
            ("aoeu", Error::Format),
            ("1.1.M", Error::Format),
            ("1+1.0M", Error::Format),
            ("0.1mi", Error::Suffix),
            ("1i", Error::Suffix),
            ("-3.01e-", Error::Suffix),
            ("1e2000", Error::Suffix),
            (" 1", Error::Format),
            ("1Zi", Error::Format),
            ("9999999999999999999999999999999999999999999", Error::Numeric),
        ];
        for (text, want) in cases {
            assert_eq!(Quantity::parse(text).err(), Some(want), "{text}");
        }
    }

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).expect(text)
    }

    #[test]
    fn arithmetic_is_exact() {
        let cases = [
            ("100m", "0.9", "1", "-800m"),
            ("1Gi", "1Mi", "1025Mi", "1023Mi"),
            ("0", "1Gi", "1Gi", "-1Gi"),
            ("1E", "1n", "1000000000000000000000000001n", "999999999999999999999999999n"),
            ("1e3", "1", "1001", "999"),
        ];
        for (a, b, add, subtract) in cases {
            let (mut sum, mut difference) = (quantity(a), quantity(a));
            sum += &quantity(b);
            difference -= &quantity(b);
            assert_eq!((sum.to_string().as_str(), difference.to_string().as_str()), (add, subtract), "{a} {b}");
        }
    }

    #[test]
    fn values_round_up_and_compare() {
        assert_eq!(quantity("1500m").value(), 2);
        assert_eq!(quantity("-1500m").value(), -2);
        assert_eq!(quantity("1").milli_value(), 1000);
        assert_eq!(quantity("1n").milli_value(), 1);
        assert_eq!(quantity("1e900").value(), i64::MAX);
        assert_eq!(quantity("1500m").as_int(), None);
        assert_eq!(quantity("2Ki").as_int(), Some(2048));
        assert!(quantity("1Gi") > quantity("1G"));
        assert!(quantity("1e900") > quantity("1n"));
        assert!(quantity("-1e900") < quantity("1n"));
        assert_eq!(quantity("1000m"), quantity("1"));
        assert_eq!(quantity("0"), quantity("0Ki"));
    }
}
