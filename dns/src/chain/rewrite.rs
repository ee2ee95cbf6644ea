//! Applies the rules of the `rewrite` plugin to a question and to its response.

use crate::corefile::{AnswerRewrite, Field, NameMatch, Rewrite};
use crate::message::{Data, Message, Name, Question, Record};

/// A question after the rules, and those that also change the response.
pub(super) struct RewrittenQuestion<'a> {
    pub question: Question,
    /// The rules that matched, with the names before and after each.
    rules: Vec<(&'a Rewrite, Name, Name)>,
}

/// None if no rule matches.
pub(super) fn rewrite_question<'a>(rules: &'a [Rewrite], question: &Question) -> Option<RewrittenQuestion<'a>> {
    let mut rewritten = RewrittenQuestion { question: question.clone(), rules: Vec::new() };
    for rule in rules {
        let before = rewritten.question.name.clone();
        if !apply(&rule.field, &mut rewritten.question) {
            continue;
        }
        let after = rewritten.question.name.clone();
        rewritten.rules.push((rule, before, after));
        if rule.is_final {
            break;
        }
    }
    (!rewritten.rules.is_empty()).then_some(rewritten)
}

/// Whether the rule matches; it may change the question.
fn apply(field: &Field, question: &mut Question) -> bool {
    let lower = question.name.to_lower();
    match field {
        Field::Type(from, to) if question.qtype == *from => question.qtype = *to,
        Field::Class(from, to) if question.class == *from => question.class = *to,
        Field::Name { from, to, .. } => {
            let name = from.replace(&lower.to_string(), to).and_then(|text| Name::parse(&text).ok());
            let Some(name) = name else { return false };
            question.name = name;
        }
        Field::Ttl { of, .. } | Field::Rcode { of, .. } if of.matches(&lower) => {}
        _ => return false,
    }
    true
}

/// Changes the response by the rules that matched, the last one first.
pub(super) fn rewrite_response(rewritten: &RewrittenQuestion, original: &Question, message: &mut Message) {
    for (rule, before, after) in rewritten.rules.iter().rev() {
        match &rule.field {
            Field::Type(..) | Field::Class(..) => {}
            Field::Ttl { min, max, .. } => message.records_mut().for_each(|record| {
                record.ttl = record.ttl.clamp(*min, *max);
            }),
            Field::Rcode { rewrite, .. } => {
                if message.header.rcode == rewrite.from {
                    message.header.rcode = rewrite.to;
                }
            }
            Field::Name { from, to, answers } => {
                // The client compares the name with its question.
                let before = if before.matches(&original.name) { &original.name } else { before };
                for answer in answers {
                    message
                        .records_mut()
                        .for_each(|record| rewrite_record(answer, (from, to), (before, after), record));
                }
            }
        }
    }
}

fn rewrite_record(answer: &AnswerRewrite, rule: (&NameMatch, &str), names: (&Name, &Name), record: &mut Record) {
    match answer {
        AnswerRewrite::Auto => {
            record.name = restored(rule, names, &record.name);
            if let Some(value) = value_mut(&mut record.data) {
                *value = restored(rule, names, value);
            }
        }
        AnswerRewrite::Name(pattern, to) => {
            let name = pattern.replace(&record.name.to_lower().to_string(), to);
            record.name = name.and_then(|text| Name::parse(&text).ok()).unwrap_or_else(|| record.name.clone());
        }
        AnswerRewrite::Value(pattern, to) => {
            let Some(value) = value_mut(&mut record.data) else { return };
            let name = pattern.replace(&value.to_lower().to_string(), to);
            *value = name.and_then(|text| Name::parse(&text).ok()).unwrap_or_else(|| value.clone());
        }
    }
}

/// The name before the rewrite: of the rewritten name itself and of those below it, or by the suffixes.
fn restored((from, to): (&NameMatch, &str), (before, after): (&Name, &Name), name: &Name) -> Name {
    if name.matches(after) {
        return before.clone();
    }
    let other = match from {
        NameMatch::Suffix(suffix) => {
            let text = name.to_lower().to_string();
            text.strip_suffix(to).and_then(|rest| Name::parse(&format!("{rest}{suffix}")).ok())
        }
        _ => name.relative_to(after).and_then(|rest| rest.with_suffix(before)),
    };
    other.unwrap_or_else(|| name.clone())
}

/// The name in the data of a record.
fn value_mut(data: &mut Data) -> Option<&mut Name> {
    match data {
        Data::Name(name) | Data::Preference(_, name) => Some(name),
        Data::Srv(srv) => Some(&mut srv.target),
        Data::Soa(soa) => Some(&mut soa.mname),
        Data::A(_) | Data::Aaaa(_) | Data::Names(..) | Data::Raw(_) => None,
    }
}
