//! Pods that match what others ask for, counted by node. Pods are kept in groups of equal namespace and
//! labels: a question is put to each group once, and from then on a pod that comes or goes moves the counts
//! of the questions that its group answers.

use std::collections::HashMap;
use std::sync::Arc;

use api::Str;

use super::counts::Counts;
use super::{Namespaces, NodeId};
use crate::model::{AffinityTerm, Labels, Pod, Selector};

/// Questions that are kept; the one that was longest not asked makes room.
const MOST_QUESTIONS: usize = 4096;

/// Pods by namespace and labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Who {
    /// Sorted.
    pub namespaces: Vec<Str>,
    pub namespace_selector: Selector,
    pub selector: Selector,
}

impl Who {
    pub fn of_namespace(namespace: &Str, selector: Selector) -> Who {
        Who { namespaces: vec![namespace.clone()], namespace_selector: Selector::nothing(), selector }
    }

    pub fn of_term(term: &AffinityTerm) -> Who {
        Who {
            namespaces: term.namespaces.clone(),
            namespace_selector: term.namespace_selector.clone(),
            selector: term.selector.clone(),
        }
    }

    pub fn matches(&self, namespace: &str, labels: &Labels, namespaces: &Namespaces) -> bool {
        self.selector.matches(labels) && self.is_in(namespace, namespaces)
    }

    fn is_in(&self, namespace: &str, namespaces: &Namespaces) -> bool {
        self.namespaces.binary_search_by(|one| one.as_str().cmp(namespace)).is_ok()
            || self.namespace_selector.matches(namespaces.get(namespace).unwrap_or(&Labels::default()))
    }

    /// Whether the answer may be another once labels of a namespace are.
    fn reads_namespaces(&self) -> bool {
        !self.namespace_selector.is_nothing() && !self.namespace_selector.is_everything()
    }
}

/// How many pods are there that all of these mean?
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    pub all: Vec<Who>,
    /// Whether pods that are about to end count.
    pub with_terminating: bool,
}

#[derive(Debug, Default)]
pub struct MatchIndex {
    groups: HashMap<Str, HashMap<Labels, Group>>,
    numbers: HashMap<Question, usize>,
    /// None where a question has been given up.
    answers: Vec<Option<Answer>>,
    tick: u64,
}

#[derive(Debug, Default)]
struct Group {
    living: Counts,
    terminating: Counts,
    /// Numbers of the questions that this group answers.
    questions: Vec<usize>,
}

#[derive(Debug)]
struct Answer {
    question: Question,
    counts: Counts,
    asked: u64,
}

impl MatchIndex {
    /// What is counted for a question that has been put.
    pub fn answer(&self, question: &Question) -> Option<&Counts> {
        let number = *self.numbers.get(question)?;
        self.answers[number].as_ref().map(|answer| &answer.counts)
    }

    /// Counts for a question from now on.
    pub(super) fn put(&mut self, question: Question, namespaces: &Namespaces) {
        self.tick += 1;
        if let Some(answer) = self.numbers.get(&question).and_then(|number| self.answers[*number].as_mut()) {
            answer.asked = self.tick;
            return;
        }
        let number = self.free_number();
        let mut counts = Counts::default();
        for (namespace, groups) in &mut self.groups {
            for (labels, group) in groups.iter_mut() {
                if question.all.iter().all(|who| who.matches(namespace, labels, namespaces)) {
                    group.count_into(&mut counts, question.with_terminating);
                    group.questions.push(number);
                }
            }
        }
        self.numbers.insert(question.clone(), number);
        self.answers[number] = Some(Answer { question, counts, asked: self.tick });
    }

    fn free_number(&mut self) -> usize {
        if self.numbers.len() >= MOST_QUESTIONS {
            let oldest = self.answers.iter().enumerate().filter_map(|(at, one)| Some((one.as_ref()?.asked, at))).min();
            oldest.into_iter().for_each(|(_, at)| self.give_up(at));
        }
        if let Some(free) = self.answers.iter().position(Option::is_none) {
            return free;
        }
        self.answers.push(None);
        self.answers.len() - 1
    }

    fn give_up(&mut self, number: usize) {
        let Some(answer) = self.answers[number].take() else { return };
        self.numbers.remove(&answer.question);
        for group in self.groups.values_mut().flat_map(HashMap::values_mut) {
            group.questions.retain(|one| *one != number);
        }
    }

    pub(super) fn add(&mut self, pod: &Arc<Pod>, node: NodeId, namespaces: &Namespaces) {
        let groups = self.groups.entry(pod.namespace.clone()).or_default();
        if !groups.contains_key(&pod.labels) {
            let answers = self.answers.iter().enumerate().filter_map(|(at, one)| Some((at, &one.as_ref()?.question)));
            let means =
                |question: &Question| question.all.iter().all(|w| w.matches(&pod.namespace, &pod.labels, namespaces));
            let questions = answers.filter(|(_, question)| means(question)).map(|(at, _)| at).collect();
            groups.insert(pod.labels.clone(), Group { questions, ..Group::default() });
        }
        let Some(group) = groups.get_mut(&pod.labels) else { return };
        group.side(pod).add(node, 1);
        for &at in &group.questions {
            if let Some(answer) = self.answers[at].as_mut().filter(|answer| answer.question.counts(pod)) {
                answer.counts.add(node, 1);
            }
        }
    }

    pub(super) fn remove(&mut self, pod: &Arc<Pod>, node: NodeId) {
        let Some(groups) = self.groups.get_mut(&pod.namespace) else { return };
        let Some(group) = groups.get_mut(&pod.labels) else { return };
        group.side(pod).remove(node, 1);
        for &at in &group.questions {
            if let Some(answer) = self.answers[at].as_mut().filter(|answer| answer.question.counts(pod)) {
                answer.counts.remove(node, 1);
            }
        }
        if group.living.is_empty() && group.terminating.is_empty() {
            groups.remove(&pod.labels);
            if groups.is_empty() {
                self.groups.remove(&pod.namespace);
            }
        }
    }

    /// Questions that look at labels of namespaces are put anew when somebody asks again.
    pub(super) fn namespaces_changed(&mut self) {
        let reads = |answer: &Answer| answer.question.all.iter().any(Who::reads_namespaces);
        let stale = self.answers.iter().enumerate().filter(|(_, one)| one.as_ref().is_some_and(reads));
        for number in stale.map(|(at, _)| at).collect::<Vec<_>>() {
            self.give_up(number);
        }
    }
}

impl Question {
    fn counts(&self, pod: &Pod) -> bool {
        self.with_terminating || !pod.is_terminating
    }
}

impl Group {
    fn side(&mut self, pod: &Pod) -> &mut Counts {
        if pod.is_terminating { &mut self.terminating } else { &mut self.living }
    }

    fn count_into(&self, counts: &mut Counts, with_terminating: bool) {
        let more = self.terminating.iter().filter(|_| with_terminating);
        self.living.iter().chain(more).for_each(|(node, count)| counts.add(node, count));
    }
}
