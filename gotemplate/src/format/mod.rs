//! Values as Go's package `fmt` prints them.

mod float;
mod integer;
mod printf;
mod text;
mod verbs;

use api::Tree;

use crate::error::CallError;
use crate::value::Data;
use verbs::Printer;

/// The result of one function may have this many bytes.
const MAX_BYTES: usize = 16 << 20;

/// A value as an action writes it.
pub(crate) fn printed(data: &Data) -> Vec<u8> {
    match data {
        Data::Invalid => b"<no value>".to_vec(),
        data => Printer::one(data, 'v'),
    }
}

/// A value with a verb and no flags.
pub(crate) fn with_verb(data: &Data, verb: char) -> String {
    String::from_utf8_lossy(&Printer::one(data, verb)).into_owned()
}

/// `%v`: a value as Go prints it by default, such as `map[a:1 b:[x y]]`.
pub fn go_value(tree: &Tree) -> String {
    with_verb(&Data::of(tree), 'v')
}

/// `%#v`: a value in Go's syntax, such as `map[string]interface {}{"a":1}`.
pub fn go_syntax(tree: &Tree) -> String {
    let mut printer = Printer::default();
    printer.flags.sharp_v = true;
    printer.print(&Data::of(tree), 'v');
    String::from_utf8_lossy(&printer.out).into_owned()
}

/// Operands with spaces between those that are not strings.
pub(crate) fn print(args: &[Data]) -> Result<Vec<u8>, CallError> {
    let mut printer = Printer::default();
    let mut was_text = true;
    for arg in args {
        let is_text = matches!(arg, Data::Text(_));
        if !was_text && !is_text {
            printer.out.push(b' ');
        }
        printer.print(arg, 'v');
        check_length(&printer)?;
        was_text = is_text;
    }
    Ok(printer.out)
}

/// Operands with spaces between all of them, and a newline.
pub(crate) fn print_line(args: &[Data]) -> Result<Vec<u8>, CallError> {
    let mut printer = Printer::default();
    for (at, arg) in args.iter().enumerate() {
        if at > 0 {
            printer.out.push(b' ');
        }
        printer.print(arg, 'v');
        check_length(&printer)?;
    }
    printer.out.push(b'\n');
    Ok(printer.out)
}

/// Operands in a format.
pub(crate) fn printf(format: &str, args: &[Data]) -> Result<Vec<u8>, CallError> {
    printf::printf(format, args)
}

fn check_length(printer: &Printer) -> Result<(), CallError> {
    if printer.out.len() > MAX_BYTES { Err(CallError::TooLong) } else { Ok(()) }
}
