//! The few elements of S3's responses that are read. They have no attributes and no nested elements of the same name.

/// The texts of all elements with a name.
pub(super) fn values(document: &str, name: &str) -> Vec<String> {
    let (start, end) = (format!("<{name}>"), format!("</{name}>"));
    let mut values = Vec::new();
    let mut rest = document;
    while let Some((_, after)) = rest.split_once(&start)
        && let Some((text, after)) = after.split_once(&end)
    {
        values.push(unescape(text));
        rest = after;
    }
    values
}

const ESCAPES: [(&str, &str); 5] = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];

fn unescape(text: &str) -> String {
    ESCAPES.iter().fold(text.to_string(), |text, (escaped, plain)| text.replace(escaped, plain))
}

pub(super) fn escape(text: &str) -> String {
    ESCAPES.iter().rev().fold(text.to_string(), |text, (escaped, plain)| text.replace(plain, escaped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_elements_and_escapes() {
        let document = "<List><Contents><Key>a&amp;b</Key></Contents><Key>c</Key><Key>torn";
        assert_eq!(values(document, "Key"), ["a&b", "c"]);
        assert!(values(document, "Code").is_empty());
        assert_eq!(escape("\"a&<\""), "&quot;a&amp;&lt;&quot;");
    }
}
