//! Which columns of the sessions fit beside each other, and lines that are broken where they do not.

use super::picture::HEAD;

/// Between two columns.
pub(crate) const GAP: usize = 2;

/// Columns in the order in which they are given up where there is no room. The client and what it holds stay.
const DISPENSABLE: [&str; 8] =
    ["UID", "SESSION", "AGE", "REFUSED", "TICKETS", "PID", "LEASES", "REQ/S"];

/// The columns that are shown on `width` characters, given how wide each would be; nothing is given up in vain.
pub(crate) fn fitting(widths: [usize; HEAD.len()], width: usize) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..HEAD.len()).collect();
    let needed = |columns: &[usize]| -> usize {
        let gaps = columns.len().saturating_sub(1) * GAP;
        columns.iter().map(|column| widths[*column]).sum::<usize>() + gaps
    };
    for title in DISPENSABLE {
        if needed(&columns) <= width {
            break;
        }
        columns.retain(|column| HEAD[*column] != title);
    }
    columns
}

/// The line in pieces of at most `width` characters, broken between words; what follows is indented.
pub(crate) fn broken(line: &str, width: usize) -> Vec<String> {
    const INDENT: &str = "  ";
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let Some(last) = lines.last_mut() else { break };
        let is_begun = !last.trim().is_empty();
        let len = last.chars().count() + word.chars().count() + usize::from(is_begun);
        if is_begun && len > width {
            lines.push(format!("{INDENT}{word}"));
        } else {
            if is_begun {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_least_is_given_up_first() {
        let widths = HEAD.map(str::len);
        let titles =
            |width| fitting(widths, width).into_iter().map(|column| HEAD[column]).collect();
        let all: Vec<&str> = titles(200);
        assert_eq!(all, HEAD);
        let some: Vec<&str> = titles(60);
        assert_eq!(
            some,
            ["CLIENT", "AT CAP", "PID", "REQ/S", "LEASES", "TICKETS", "HELD", "REFUSED"]
        );
        let fewest: Vec<&str> = titles(1);
        assert_eq!(fewest, ["CLIENT", "AT CAP", "HELD"]);
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(broken("one two three", 80), ["one two three"]);
        assert_eq!(broken("one two three", 8), ["one two", "  three"]);
        assert_eq!(broken("incomprehensible a", 4), ["incomprehensible", "  a"]);
        assert_eq!(broken("", 4), [""]);
    }
}
