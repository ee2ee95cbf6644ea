//! Declarations of functions: a row per overload, with its types as text.

use crate::types::Type;

/// An overload of a function.
#[derive(Debug, Clone)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    /// Whether it is called on its first argument: `target.function(…)`.
    pub(crate) member: bool,
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    /// The names of its type parameters.
    pub(crate) type_params: Vec<&'static str>,
}

/// The function, the id of the overload, and the signature: `string.(int, list<A>) -> A`.
pub(crate) type Row = (&'static str, &'static str, &'static str);

impl Overload {
    pub(crate) fn read(row: &Row) -> Overload {
        let (_, id, signature) = row;
        let (head, result) = signature.split_once(" -> ").unwrap_or((signature, "dyn"));
        let (target, params) = head.split_once('(').unwrap_or(("", head));
        let params = params.trim_end_matches(')');
        let target = target.strip_suffix('.');
        let texts: Vec<&str> = target.into_iter().chain(split_list(params)).collect();
        let type_params = ["A", "B", "K", "T", "V"].into_iter().filter(|name| mentions(signature, name)).collect();
        let params = texts.into_iter().map(read_type).collect();
        Overload { id, member: target.is_some(), params, result: read_type(result), type_params }
    }
}

/// Whether a signature has a type parameter.
fn mentions(signature: &str, name: &str) -> bool {
    signature.split(|c: char| !(c.is_alphanumeric() || c == '.' || c == '_')).any(|word| word.trim_matches('.') == name)
}

/// The parts between the commas that are not inside brackets.
fn split_list(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text.trim().is_empty() {
        parts.push(text[start..].trim());
    }
    parts
}

/// A type of a signature: `int`, `list<T>`, `map<K, V>`, `optional<V>`, `type<A>`, a type parameter, or an object.
pub(crate) fn read_type(text: &str) -> Type {
    if let Some((outer, inner)) = text.split_once('<') {
        let inner = split_list(inner.strip_suffix('>').unwrap_or(inner));
        let mut params = inner.into_iter().map(read_type);
        let mut next = || params.next().unwrap_or(Type::Dyn);
        return match outer {
            "list" => Type::list(next()),
            "map" => Type::map(next(), next()),
            "type" => Type::type_of(next()),
            _ => Type::optional(next()),
        };
    }
    match text {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "net.IP" | "net.CIDR" => Type::opaque(text),
        _ if text.len() == 1 => Type::param(text),
        _ => Type::object(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_signatures() {
        let overload = Overload::read(&("f", "id", "list<A>.(map<K, list<V>>, int) -> optional<A>"));
        assert!(overload.member);
        assert_eq!(overload.type_params, ["A", "K", "V"]);
        let params: Vec<String> = overload.params.iter().map(Type::to_string).collect();
        assert_eq!(params, ["list(A)", "map(K, list(V))", "int"]);
        assert_eq!(overload.result.to_string(), "optional_type(A)");
        let overload = Overload::read(&("f", "id", "() -> kubernetes.URL"));
        assert!(!overload.member && overload.params.is_empty() && overload.type_params.is_empty());
    }
}
