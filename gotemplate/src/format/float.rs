//! Floats as `strconv.AppendFloat` writes them.

/// The shortest text that reads back as the number, or the one of a precision. The verb is one of `e E f g G b x X`.
pub(super) fn format(value: f64, verb: char, precision: Option<usize>) -> String {
    if value.is_nan() {
        return "NaN".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_string();
    }
    match verb {
        'e' | 'E' => exponent(value, precision, verb),
        'f' => precision.map_or_else(|| value.to_string(), |precision| format!("{value:.precision$}")),
        'g' | 'G' => general(value, precision, if verb == 'g' { 'e' } else { 'E' }),
        'b' => binary(value),
        _ => hexadecimal(value, precision, verb),
    }
}

/// Mantissa and exponent, which has a sign and two digits.
fn exponent(value: f64, precision: Option<usize>, letter: char) -> String {
    let text = precision.map_or_else(|| format!("{value:e}"), |precision| format!("{value:.precision$e}"));
    let (mantissa, exponent) = split(&text);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}{letter}{sign}{:02}", exponent.abs())
}

fn split(text: &str) -> (&str, i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    (mantissa, exponent.parse().unwrap_or(0))
}

fn general(value: f64, precision: Option<usize>, letter: char) -> String {
    let precision = precision.map(|precision| precision.max(1));
    let text = precision.map_or_else(|| format!("{value:e}"), |precision| format!("{value:.*e}", precision - 1));
    let (mantissa, exponent) = split(&text);
    let digits = mantissa.trim_end_matches('0').bytes().filter(u8::is_ascii_digit).count().max(1);
    let point = exponent + 1;
    let limit = match precision {
        None => 6,
        Some(precision) if precision > digits && digits as i32 >= point => digits as i32,
        Some(precision) => precision as i32,
    };
    if exponent < -4 || exponent >= limit {
        return self::exponent(value, Some(digits - 1), letter);
    }
    let decimals = usize::try_from(digits as i32 - point).unwrap_or(0);
    if precision.is_some() {
        // The rounded number, not the original one, has these digits.
        let rounded: f64 = text.parse().unwrap_or(value);
        return format!("{rounded:.decimals$}");
    }
    value.to_string()
}

fn parts(value: f64) -> (bool, u64, i32) {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    let (mantissa, exponent) = if exponent == 0 { (fraction, 1) } else { (fraction | 1 << 52, exponent) };
    (bits >> 63 == 1, mantissa, exponent - 1023 - 52)
}

fn binary(value: f64) -> String {
    let (is_negative, mantissa, exponent) = parts(value);
    format!("{}{mantissa}p{exponent:+}", if is_negative { "-" } else { "" })
}

/// `0x1.8p+01`.
fn hexadecimal(value: f64, precision: Option<usize>, verb: char) -> String {
    let (is_negative, mut mantissa, mut exponent) = parts(value);
    if mantissa == 0 {
        exponent = 0;
    } else {
        exponent += 52;
        while mantissa & 1 << 52 == 0 {
            mantissa <<= 1;
            exponent -= 1;
        }
    }
    if let Some(precision) = precision.filter(|precision| *precision < 13) {
        let dropped = (13 - precision) * 4;
        let (kept, rest, half) = (mantissa >> dropped, mantissa & ((1 << dropped) - 1), 1 << (dropped - 1));
        let rounded = kept + u64::from(rest > half || (rest == half && kept & 1 == 1));
        mantissa = rounded << dropped;
        if mantissa >> 53 == 1 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let digits = format!("{:013x}", mantissa & ((1 << 52) - 1));
    let digits = match precision {
        None => digits.trim_end_matches('0').to_string(),
        Some(precision) => format!("{digits:0<precision$}")[..precision].to_string(),
    };
    let point = if digits.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    let text = format!(
        "{}0x{}{point}{digits}p{sign}{:02}",
        if is_negative { "-" } else { "" },
        mantissa >> 52,
        exponent.abs()
    );
    if verb == 'X' { text.to_uppercase() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_go_does() {
        for (value, verb, precision, want) in [
            (1.0, 'g', None, "1"),
            (100000.0, 'g', None, "100000"),
            (1e6, 'g', None, "1e+06"),
            (123456.5, 'g', None, "123456.5"),
            (1234567.5, 'g', None, "1.2345675e+06"),
            (0.0001, 'g', None, "0.0001"),
            (0.00001, 'g', None, "1e-05"),
            (2.54159, 'g', Some(3), "2.54"),
            (1234.5678, 'g', Some(2), "1.2e+03"),
            (100.0, 'g', Some(3), "100"),
            (1.5, 'e', Some(6), "1.500000e+00"),
            (2.5, 'f', Some(0), "2"),
            (0.0, 'g', None, "0"),
            (1.5, 'x', None, "0x1.8p+00"),
            (1.0, 'x', Some(2), "0x1.00p+00"),
            (1.0, 'b', None, "4503599627370496p-52"),
            (-12.0, 'X', None, "-0X1.8P+03"),
        ] {
            assert_eq!(format(value, verb, precision), want, "{value} {verb} {precision:?}");
        }
    }
}
