//! The estimated costs of calls.

use std::sync::Arc;

use super::{Argument, CostEstimate, Estimator, SizeEstimate};
use crate::cost::{CHECK, LIST, OBJECT, REGEX_FACTOR, STRING_FACTOR};
use crate::syntax::ast::{Expr, ExprId, Literal};
use crate::syntax::operators as op;
use crate::types::Type;

/// The cost of a call without its arguments, and the size of its result if it is known.
type CallEstimate = (CostEstimate, Option<SizeEstimate>);

/// The sizes of an address of either family.
const ADDRESS: SizeEstimate = SizeEstimate { min: 4, max: 16 };
/// The length of the longest regular expression of a named format, and of its name.
const FORMAT_REGEX: f64 = 128.0;
const FORMAT_NAME: u64 = 64;

impl Estimator<'_> {
    pub(super) fn visit_call(
        &mut self,
        id: ExprId,
        function: &str,
        target: Option<ExprId>,
        args: &[ExprId],
    ) -> CostEstimate {
        if function == "dyn" && args.len() == 1 {
            let cost = self.visit(args[0]);
            self.copy_sizes(id, args[0]);
            return cost.add(CostEstimate::fixed(1));
        }
        let costs: Vec<CostEstimate> = args.iter().map(|arg| self.visit(*arg)).collect();
        let arguments: Vec<Argument> = args.iter().map(|arg| self.argument(*arg)).collect();
        let overloads = self.checked.overloads(id);
        if overloads.is_empty() {
            return CostEstimate::fixed(0);
        }
        let target_cost = target.map_or(CostEstimate::fixed(0), |target| self.visit(target));
        let target = target.map(|target| self.argument(target));
        let mut total: Option<CostEstimate> = None;
        let mut result = None;
        for overload in overloads {
            let call = Called { id, function, overload, target: target.as_ref(), args: &arguments, costs: &costs };
            let (cost, size) = self.estimate_overload(&call);
            total = Some(total.map_or(cost, |total| total.union(cost)));
            result = match (result, size) {
                (Some(previous), Some(size)) => Some(SizeEstimate::union(previous, size)),
                (previous, size) => previous.or(size),
            };
            if let (Some(part), Some(container)) = (indexed_part(overload), args.first()) {
                result = self.entry_size(*container).map(|entry| entry.value);
                let mut path = self.path(*container);
                path.push(part.into());
                self.paths.insert(id, path);
            }
            if result.is_none() {
                result = self.size(id);
            }
        }
        if let Some(size) = result {
            self.computed.insert(id, size);
        }
        target_cost.add(total.unwrap_or(CostEstimate::fixed(0)))
    }

    fn estimate_overload(&mut self, call: &Called<'_>) -> CallEstimate {
        let of_libraries = self.estimate_lists(call).or_else(|| self.estimate_library(call));
        match of_libraries {
            Some((cost, size)) => (cost.add(call.arguments_cost()), size),
            None => self.estimate_standard(call),
        }
    }
}

/// The part that an index selects.
fn indexed_part(overload: &str) -> Option<&'static str> {
    match overload {
        "index_list" => Some("@items"),
        "index_map" => Some("@values"),
        _ => None,
    }
}

/// A call with one of its overloads.
struct Called<'c> {
    id: ExprId,
    function: &'c str,
    overload: &'c str,
    target: Option<&'c Argument>,
    args: &'c [Argument],
    costs: &'c [CostEstimate],
}

impl Called<'_> {
    fn arguments_cost(&self) -> CostEstimate {
        self.costs.iter().fold(CostEstimate::fixed(0), |sum, cost| sum.add(*cost))
    }
}

fn fixed(cost: u64) -> Option<CallEstimate> {
    Some((CostEstimate::fixed(cost), None))
}

/// Functions that build lists, and sets.
impl Estimator<'_> {
    fn estimate_lists(&mut self, call: &Called<'_>) -> Option<CallEstimate> {
        let allocate = |factor: f64, size: SizeEstimate| {
            let cost = size.multiply_factor(factor).add(CostEstimate::fixed(1 + LIST));
            Some((cost, Some(size)))
        };
        let target = call.target.map(|target| self.argument_size(target));
        match call.overload {
            "list_slice" => {
                let size = target?;
                let (start, end) = (self.literal(&call.args[0], 0), self.literal(&call.args[1], size.max));
                allocate(1.0, SizeEstimate::fixed(end.wrapping_sub(start)))
            }
            "list_flatten" => allocate(1.0, target?),
            "list_flatten_int" => allocate(self.literal(&call.args[0], u64::MAX) as f64, target?),
            "lists_range" => allocate(1.0, SizeEstimate::fixed(self.literal(&call.args[0], u64::MAX))),
            "list_reverse" => allocate(1.0, target?),
            "list_distinct" => allocate(2.0, target?.multiply(target?)),
            "list_sets_contains_list" | "list_sets_intersects_list" => self.estimate_sets(call, 1.0),
            "list_sets_equivalent_list" => self.estimate_sets(call, 2.0),
            overload => {
                let factor = if is_text_list(overload) { 2.0 + STRING_FACTOR } else { 2.0 };
                let size = match overload {
                    _ if overload.ends_with("_sort") => target?,
                    _ if overload.ends_with("_sortByAssociatedKeys") => self.argument_size(call.args.first()?),
                    _ => return None,
                };
                allocate(factor, size.multiply(size))
            }
        }
    }

    fn estimate_sets(&self, call: &Called<'_>, factor: f64) -> Option<CallEstimate> {
        let [first, second] = call.args else { return None };
        let size = self.argument_size(first).multiply(self.argument_size(second));
        Some((size.multiply_factor(factor).add(CostEstimate::fixed(1)), None))
    }

    /// The value of an argument that is a literal number.
    fn literal(&self, argument: &Argument, otherwise: u64) -> u64 {
        match self.checked.ast.expr(argument.id) {
            Expr::Literal(Literal::Int(number)) => u64::try_from(*number).unwrap_or(0),
            _ => otherwise,
        }
    }
}

fn is_text_list(overload: &str) -> bool {
    overload.starts_with("list_string_") || overload.starts_with("list_bytes_")
}

/// Kubernetes' functions.
impl Estimator<'_> {
    fn estimate_library(&mut self, call: &Called<'_>) -> Option<CallEstimate> {
        let first = call.args.first().map(|arg| self.argument_size(arg));
        let target = call.target.map(|target| self.argument_size(target));
        let read = |size: SizeEstimate, factor: f64| Some((size.multiply_factor(factor), None));
        match call.function {
            "check" => fixed(CHECK),
            "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name" | "allowed"
            | "reason" | "error" | "errored" => fixed(1),
            "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast" => fixed(1),
            "sign" | "asInteger" | "isInteger" | "asApproximateFloat" | "isGreaterThan" | "isLessThan"
            | "compareTo" | "add" | "sub" | "major" | "minor" | "patch" => fixed(1),
            "getScheme" | "getHostname" | "getHost" | "getPort" | "getEscapedPath" | "getQuery" | "format.named" => {
                fixed(1)
            }
            "fieldSelector" | "labelSelector" => Some((selector(first?), None)),
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => {
                self.estimate_traversal(call)
            }
            "url" | "jsonpatch.escapeKey" => Some((first?.multiply_factor(STRING_FACTOR), first)),
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                Some((target?.multiply_factor(STRING_FACTOR), target))
            }
            "replace" => self.estimate_replace(call),
            "split" => {
                let size = target?;
                let max = call.args.get(1).map_or(size.max, |limit| self.literal(limit, size.max));
                let cost = size.multiply_factor(2.0 * STRING_FACTOR);
                Some((cost, Some(SizeEstimate { min: 0, max })))
            }
            "join" => self.estimate_join(call),
            "find" | "findAll" => {
                let cost = regex(target?, first?);
                Some((cost, Some(SizeEstimate { min: 0, max: target?.max })))
            }
            "ip" if call.overload == "cidr_ip" => fixed(1),
            "ip" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                read(first?, STRING_FACTOR)
            }
            "ip.isCanonical" => read(first?, 2.0 * STRING_FACTOR),
            "containsIP" => Some((contains_ip(first?, call.overload == "cidr_contains_ip_string"), None)),
            "containsCIDR" => Some((contains_cidr(first?, call.overload == "cidr_contains_cidr_string"), None)),
            "validate" => {
                let cost = first?.multiply_factor(STRING_FACTOR).multiply_factor(FORMAT_REGEX * REGEX_FACTOR);
                Some((cost, None))
            }
            op::EQUALS => self.estimate_library_equality(call),
            _ => None,
        }
    }

    fn estimate_traversal(&mut self, call: &Called<'_>) -> Option<CallEstimate> {
        let target = call.target?;
        let size = self.argument_size(target);
        let element = match self.checked.type_of(target.id) {
            Type::List(item) => Some((**item).clone()),
            Type::Map(pair) => Some(pair.0.clone()),
            other => other.optional_value().cloned(),
        };
        let one = CostEstimate::fixed(1);
        let cost = match element {
            Some(Type::String | Type::Bytes) => {
                let item = self.element_size(target).multiply_factor(STRING_FACTOR);
                size.multiply_cost(one.add(item))
            }
            Some(_) => size.multiply_cost(one),
            None if call.function == "includes" => size.multiply_cost(one),
            None => size.multiply_factor(STRING_FACTOR),
        };
        Some((cost, None))
    }

    /// The declared size of the items; those of a computed list have none.
    fn element_size(&self, list: &Argument) -> SizeEstimate {
        if list.path.is_empty() {
            return SizeEstimate::UNKNOWN;
        }
        let path: Vec<Arc<str>> = list.path.iter().cloned().chain([Arc::from("@items")]).collect();
        self.estimate_path(&path).unwrap_or(SizeEstimate::UNKNOWN)
    }

    fn estimate_replace(&mut self, call: &Called<'_>) -> Option<CallEstimate> {
        let size = self.argument_size(call.target?);
        let [old, new, ..] = call.args else { return None };
        let (old, new) = (self.argument_size(old), self.argument_size(new));
        let divide = |size: u64, by: u64| (size as f64 / by as f64).ceil() as u64;
        let (max_count, max_kept) = match () {
            () if old.min == 0 => (size.max.saturating_add(1), size.max),
            () if new.max <= old.min => (0, size.max),
            () => (divide(size.max, old.min), 0),
        };
        let (min_count, min_kept) = match () {
            () if old.max == 0 => (size.min.saturating_add(1), size.min),
            () if old.max <= new.min => (0, size.min),
            () => (divide(size.min, old.max), 0),
        };
        let count = SizeEstimate { min: min_count, max: max_count };
        let result = count.multiply(new).add(SizeEstimate { min: min_kept, max: max_kept });
        Some((size.multiply_factor(2.0 * STRING_FACTOR), Some(result)))
    }

    fn estimate_join(&mut self, call: &Called<'_>) -> Option<CallEstimate> {
        let target = call.target?;
        let length = self.argument_size(target);
        let mut size = length.multiply(self.element_size(target));
        if let Some(separator) = call.args.first() {
            let count = SizeEstimate { min: length.min.saturating_sub(1), max: length.max.saturating_sub(1) };
            size = size.add(self.argument_size(separator).multiply(count));
        }
        Some((size.multiply_factor(STRING_FACTOR), Some(size)))
    }

    /// Equality of values of the libraries.
    fn estimate_library_equality(&mut self, call: &Called<'_>) -> Option<CallEstimate> {
        let [first, second] = call.args else { return None };
        let of = self.checked.type_of(first.id);
        if of != self.checked.type_of(second.id) {
            return None;
        }
        match of.name() {
            "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => fixed(1),
            name if name.starts_with("kubernetes.authorization.") => fixed(1),
            "kubernetes.NamedFormat" => {
                Some((CostEstimate { min: 1, max: FORMAT_NAME }.multiply_factor(STRING_FACTOR), None))
            }
            "kubernetes.URL" => {
                let max = second.size.map_or(1, |size| size.max);
                Some((CostEstimate { min: 1, max }.multiply_factor(STRING_FACTOR), None))
            }
            _ => None,
        }
    }
}

fn selector(length: SizeEstimate) -> CostEstimate {
    let requirements = length.multiply_factor(0.5).multiply_factor((LIST + OBJECT) as f64);
    CostEstimate::fixed(LIST).add(length.multiply_factor(STRING_FACTOR)).add(requirements)
}

fn regex(text: SizeEstimate, pattern: SizeEstimate) -> CostEstimate {
    let text = text.add(SizeEstimate::fixed(1)).multiply_factor(STRING_FACTOR);
    text.multiply(pattern.multiply_factor(REGEX_FACTOR))
}

fn contains_ip(other: SizeEstimate, parses: bool) -> CostEstimate {
    let compare = ADDRESS.add(ADDRESS).multiply_factor(STRING_FACTOR);
    if parses { compare.add(other.multiply_factor(STRING_FACTOR)) } else { compare }
}

fn contains_cidr(other: SizeEstimate, parses: bool) -> CostEstimate {
    let mask = ADDRESS.multiply_factor(STRING_FACTOR).add(CostEstimate::fixed(1));
    contains_ip(other, parses).add(mask)
}

/// The language's own functions.
impl Estimator<'_> {
    fn estimate_standard(&mut self, call: &Called<'_>) -> CallEstimate {
        let size = |argument: Option<&Argument>| argument.and_then(|arg| arg.size).unwrap_or(SizeEstimate::UNKNOWN);
        let (first, second) = (size(call.args.first()), size(call.args.get(1)));
        let target = size(call.target);
        let args = call.arguments_cost();
        let read = |size: SizeEstimate| size.multiply_factor(STRING_FACTOR).add(args);
        match call.overload {
            "string_format" => (read(target), None),
            "string_to_bytes" => (read(first), Some(SizeEstimate { min: first.min, max: first.max.wrapping_mul(4) })),
            "bytes_to_string" => (read(first), Some(SizeEstimate { min: first.min / 4, max: first.max })),
            "strings_quote" => {
                let max = first.max.wrapping_mul(2).wrapping_add(2);
                (read(first), Some(SizeEstimate { min: first.min.wrapping_add(2), max }))
            }
            "starts_with_string" | "ends_with_string" => (read(first), None),
            "in_list" => (second.multiply_factor(1.0).add(args), None),
            "matches_string" => (regex(target, first).add(args), None),
            "matches" => (regex(first, second).add(args), None),
            "contains_string" => {
                let cost = target.multiply_factor(STRING_FACTOR).multiply(first.multiply_factor(STRING_FACTOR));
                (cost.add(args), None)
            }
            "logical_or" | "logical_and" => {
                let (left, right) = (call.costs[0], call.costs[1]);
                (CostEstimate { min: left.min, max: left.add(right).max }, None)
            }
            "conditional" => self.estimate_conditional(call),
            "add_string" | "add_bytes" | "add_list" => self.estimate_addition(call, first.add(second)),
            overload if is_comparison_of_text(overload) => {
                let max = first.max.min(second.max);
                let compared = CostEstimate { min: u64::from(max > 0), max };
                (compared.multiply_factor(STRING_FACTOR).add(args), None)
            }
            _ => (CostEstimate::fixed(1).add(args), None),
        }
    }

    fn estimate_conditional(&mut self, call: &Called<'_>) -> CallEstimate {
        let [_, yes, no] = call.args else { return (call.arguments_cost(), None) };
        let unknown = SizeEstimate::UNKNOWN;
        let size = yes.size.unwrap_or(unknown).union(no.size.unwrap_or(unknown));
        if let (Some(yes), Some(no)) = (self.entry_size(yes.id), self.entry_size(no.id)) {
            self.entries.insert(call.id, yes.union(no));
        }
        (call.costs[0].add(call.costs[1].union(call.costs[2])), Some(size))
    }

    fn estimate_addition(&mut self, call: &Called<'_>, size: SizeEstimate) -> CallEstimate {
        if let [first, second] = call.args
            && let (Some(first), Some(second)) = (self.entry_size(first.id), self.entry_size(second.id))
        {
            self.entries.insert(call.id, first.union(second));
        }
        let cost = match call.overload {
            "add_list" => CostEstimate::fixed(1),
            _ => size.multiply_factor(STRING_FACTOR),
        };
        (cost.add(call.arguments_cost()), Some(size))
    }
}

fn is_comparison_of_text(overload: &str) -> bool {
    let is_order = overload.starts_with("less_") || overload.starts_with("greater_");
    matches!(overload, "equals" | "not_equals")
        || (is_order && (overload.ends_with("_string") || overload.ends_with("_bytes")))
}
