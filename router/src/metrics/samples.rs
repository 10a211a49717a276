//! Lines of the Prometheus text format.

use std::fmt::Display;

use crate::meters::Histogram;

/// The samples of one metric, as they are written.
#[derive(Debug)]
pub(super) struct Samples<'a> {
    name: &'a str,
    labels: &'a [&'a str],
    text: &'a mut String,
}

impl<'a> Samples<'a> {
    pub(super) fn new(name: &'a str, labels: &'a [&'a str], text: &'a mut String) -> Self {
        Self { name, labels, text }
    }

    /// One sample, with the values of the labels in their order.
    pub(super) fn add(&mut self, labels: &[&str], value: impl Display) {
        self.line("", labels, None, value);
    }

    /// The samples of a histogram in seconds.
    pub(super) fn histogram(&mut self, labels: &[&str], histogram: &Histogram) {
        self.buckets(labels, histogram, seconds);
    }

    /// The samples of a histogram of numbers.
    pub(super) fn numbers(&mut self, labels: &[&str], histogram: &Histogram) {
        self.buckets(labels, histogram, |number| number.to_string());
    }

    fn buckets(&mut self, labels: &[&str], histogram: &Histogram, text: fn(u64) -> String) {
        let (buckets, count, sum) = histogram.read();
        for (bound, up_to) in buckets {
            self.line("_bucket", labels, Some(&text(bound)), up_to);
        }
        self.line("_bucket", labels, Some("+Inf"), count);
        self.line("_sum", labels, None, text(sum));
        self.line("_count", labels, None, count);
    }

    fn line(&mut self, suffix: &str, values: &[&str], le: Option<&str>, value: impl Display) {
        let labels = self.labels.iter().copied().zip(values.iter().copied());
        let labels = labels.chain(le.map(|le| ("le", le)));
        let labels: Vec<String> =
            labels.map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let name = self.name;
        let line = match labels.as_slice() {
            [] => format!("{name}{suffix} {value}\n"),
            labels => format!("{name}{suffix}{{{}}} {value}\n", labels.join(",")),
        };
        self.text.push_str(&line);
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Microseconds as decimal seconds, exactly.
fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_are_as_prometheus_reads_them() {
        let mut text = String::new();
        Samples::new("x", &[], &mut text).add(&[], 7);
        Samples::new("x", &["a", "b"], &mut text).add(&["q\"\\\n", ""], 1.5);
        let histogram = Histogram::new(&[1_000, 2_500_000]);
        histogram.observe(Duration::from_millis(2));
        histogram.observe(Duration::from_secs(3));
        Samples::new("x", &["a"], &mut text).histogram(&["b"], &histogram);
        let blocks = Histogram::new(&[0, 2]);
        blocks.observe_number(2);
        Samples::new("y", &[], &mut text).numbers(&[], &blocks);
        let wanted = "x 7\n\
            x{a=\"q\\\"\\\\\\n\",b=\"\"} 1.5\n\
            x_bucket{a=\"b\",le=\"0.001\"} 0\n\
            x_bucket{a=\"b\",le=\"2.5\"} 1\n\
            x_bucket{a=\"b\",le=\"+Inf\"} 2\n\
            x_sum{a=\"b\"} 3.002\n\
            x_count{a=\"b\"} 2\n\
            y_bucket{le=\"0\"} 0\n\
            y_bucket{le=\"2\"} 1\n\
            y_bucket{le=\"+Inf\"} 1\n\
            y_sum 2\n\
            y_count 1\n";
        assert_eq!(text, wanted);
    }
}
