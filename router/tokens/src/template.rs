//! A chat template, compiled once and rendered under a budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::{Environment, ErrorKind, Value};

use crate::content_form::{self, ContentForm};
use crate::environment::{self, NOW};
use crate::json::Map;
use crate::why_not::WhyNot;

/// Templates larger than this are not compiled.
pub(crate) const TEMPLATE_BYTES_MAX: usize = 1 << 20;

/// What one rendering may use up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Instructions, and bytes at 64 to one.
    pub(crate) fuel: u64,
    /// Bytes of the rendered text.
    pub(crate) text_bytes: usize,
}

/// One compiled template and what engines conclude from its source.
pub(crate) struct Template {
    environment: Environment<'static>,
    budget: Budget,
    /// What vLLM takes the form of content to be.
    pub(crate) vllm_form: ContentForm,
    /// What SGLang takes it to be.
    pub(crate) sglang_form: ContentForm,
    /// Does the source name the role `developer`?
    pub(crate) knows_developer: bool,
    pub(crate) source: Arc<str>,
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Template").field("source", &self.source).finish_non_exhaustive()
    }
}

const NAME: &str = "chat";

impl Template {
    /// # Errors
    /// The source is too large or is not a template.
    pub(crate) fn compile(source: &str, budget: Budget) -> Result<Self, String> {
        if source.len() > TEMPLATE_BYTES_MAX {
            return Err(format!("more than {TEMPLATE_BYTES_MAX} bytes"));
        }
        // Python reads files with its universal newlines.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let readable = without_generation_tags(&source);
        let mut environment = environment::environment();
        // What every single rendering may use up.
        environment.set_fuel(Some(budget.fuel));
        environment
            .add_template_owned(NAME, readable.clone())
            .map_err(|error| format!("{error:#}"))?;
        let (vllm_form, sglang_form) = content_form::of(&readable);
        Ok(Self {
            environment,
            budget,
            vllm_form,
            sglang_form,
            knows_developer: source.contains("\"developer\"") || source.contains("'developer'"),
            source: source.into(),
        })
    }

    /// The text of a conversation.
    ///
    /// # Errors
    /// [`WhyNot::Refused`] if the template raises, [`WhyNot::TooCostly`] if the budget does not suffice.
    pub(crate) fn render(
        &self,
        variables: BTreeMap<Arc<str>, Value>,
        now: i64,
    ) -> Result<String, WhyNot> {
        let refused = |error: &minijinja::Error| match error.kind() {
            ErrorKind::OutOfFuel => WhyNot::TooCostly,
            _ => WhyNot::Refused(error.detail().unwrap_or("template error").into()),
        };
        let template = self.environment.get_template(NAME).map_err(|error| refused(&error))?;
        let mut pairs: Vec<(Arc<str>, Value)> = variables.into_iter().collect();
        pairs.push((NOW.into(), Value::from(now)));
        let text = template.render(Value::from_pairs(pairs)).map_err(|error| refused(&error))?;
        if text.len() > self.budget.text_bytes {
            return Err(WhyNot::TooLarge);
        }
        Ok(text)
    }
}

/// Adds `map` to the variables of a template; later ones win.
pub(crate) fn add_variables(variables: &mut BTreeMap<Arc<str>, Value>, map: &Map) {
    variables.extend(map.iter().map(|(name, value)| (Arc::clone(name), Value::from(value))));
}

/// The `generation` tag of Transformers marks what a model wrote, and changes nothing in the text; its body has a scope.
fn without_generation_tags(source: &str) -> String {
    let mut readable = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        readable.push_str(before);
        let Some(length) = tag.find("%}").map(|end| end + 2) else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(length);
        let word = tag.trim_matches(|sign: char| "{}%-+".contains(sign) || sign.is_whitespace());
        match word {
            "generation" | "endgeneration" => {
                let with = if word == "generation" { "with" } else { "endwith" };
                readable.push_str(&tag.replace(word, with));
            }
            _ => readable.push_str(tag),
        }
        rest = after;
    }
    readable.push_str(rest);
    readable
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget { fuel: 100_000, text_bytes: 10_000 };

    fn rendered(source: &str) -> Result<String, WhyNot> {
        Template::compile(source, BUDGET).unwrap().render(BTreeMap::new(), 1_700_000_000)
    }

    #[test]
    fn blocks_are_trimmed_as_transformers_does() {
        let source = "{% for n in range(3) %}\n  {% if n == 1 %}{% continue %}{% endif %}\n{{ n }}\n{% endfor %}\n";
        assert_eq!(rendered(source).unwrap(), "0\n2\n");
    }

    #[test]
    fn generation_tags_leave_their_body() {
        let source = "a{%- generation -%} b {%- set x = 1 %}{% endgeneration %}{{ x is defined }}";
        assert_eq!(rendered(source).unwrap(), "abFalse");
    }

    #[test]
    fn the_time_is_the_callers() {
        assert_eq!(rendered("{{ strftime_now('%d %b %Y %H:%M') }}").unwrap(), "14 Nov 2023 22:13");
        assert!(rendered("{{ strftime_now('%') }}").is_err());
    }

    #[test]
    fn a_template_that_raises_says_why() {
        let refusal = rendered("{{ raise_exception('roles must alternate') }}");
        assert_eq!(refusal, Err(WhyNot::Refused("roles must alternate".into())));
    }

    #[test]
    fn no_template_runs_for_long_or_writes_much() {
        for source in [
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
            "{% set ns = namespace(x='aaaaaaaa') %}{% for n in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "{{ 'a' * 999999999 }}",
            "{{ ('a' * 9999).replace('a', 'b' * 9999) }}",
            "{{ range(99999) | list | tojson }}{% for n in range(999) %}{{ range(99999) | list | tojson }}{% endfor %}",
            "{% for n in range(9999) %}{{ [[1, 2, 3] * 99] }}{% endfor %}",
            "{{ 'a' * 99999 }}",
        ] {
            let outcome = rendered(source);
            assert!(outcome.is_err(), "{source}: {outcome:?}");
        }
    }

    #[test]
    fn what_is_no_template_is_not_compiled() {
        assert!(Template::compile("{% if %}", BUDGET).is_err());
        assert!(Template::compile(&"a".repeat(TEMPLATE_BYTES_MAX + 1), BUDGET).is_err());
    }
}
