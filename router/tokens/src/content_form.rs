//! In what form a template takes the content of a message: a text, or a list of parts.
//!
//! Engines read it off the template: one that loops over a message's content takes lists. They don't agree on what such a
//! loop looks like, so each is followed in its own way.

use std::collections::BTreeSet;

use minijinja::machinery::ast::{CallArg, Expr, ForLoop, Macro, Set, Stmt};
use minijinja::machinery::{ast, parse};

use crate::environment;

/// What `content` is when a template is rendered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ContentForm {
    /// One text; parts are joined.
    Text,
    /// A list of parts: `{"type": "text", "text": …}`, `{"type": "image"}`.
    Parts,
}

/// What vLLM and what SGLang conclude from `source`, in this order.
pub(crate) fn of(source: &str) -> (ContentForm, ContentForm) {
    let Ok(tree) = parse(source, "chat", environment::syntax()) else {
        return (ContentForm::Text, ContentForm::Text);
    };
    let mut found = Found::default();
    found.statement(&tree, None);
    let form = |parts: bool| if parts { ContentForm::Parts } else { ContentForm::Text };
    (form(vllm(&found).unwrap_or(false)), form(sglang(source, &found)))
}

/// vLLM: a loop over the content of a message, followed through assignments, loops and arguments of macros.
///
/// None if a target is not a single name, which vLLM takes for a template it cannot read.
fn vllm(found: &Found<'_, '_>) -> Option<bool> {
    let mut conversations = vec!["messages"];
    let mut next = 0;
    while let Some(name) = conversations.get(next).copied() {
        next += 1;
        for set in &found.sets {
            if reads(&set.expr, name, None) {
                let target = name_of(&set.target)?;
                if target != name && !conversations.contains(&target) {
                    conversations.push(target);
                }
            }
        }
    }
    let mut messages = Vec::new();
    for found in &found.loops {
        if conversations.iter().any(|name| reads(&found.looped.iter, name, None)) {
            messages.push(name_of(&found.looped.target)?);
        }
    }
    for found_loop in &found.loops {
        let iterated = &found_loop.looped.iter;
        let of_message = messages.iter().any(|name| reads(iterated, name, Some("content")));
        let of_argument = || match (name_of(iterated), found_loop.within) {
            (Some(name), Some(within)) => {
                found.arguments_with_content(within, &messages).contains(name)
            }
            (Some(name), None) => name == "content",
            (None, _) => false,
        };
        if of_message || of_argument() {
            return name_of(&found_loop.looped.target).map(|_| true);
        }
    }
    Some(false)
}

/// SGLang: any word of other media, or a loop over the content of `message`, `msg` or `m`.
fn sglang(source: &str, found: &Found<'_, '_>) -> bool {
    let media = ["image", "audio", "video", "vision"];
    media.iter().any(|word| source.contains(word))
        || found.loops.iter().any(|found| {
            ["message", "msg", "m"]
                .iter()
                .any(|name| reads(&found.looped.iter, name, Some("content")))
        })
}

/// Is `expression` the variable `name` or, with a key, that entry of it? Filters, tests and slices of it count as well.
fn reads(expression: &Expr<'_>, name: &str, key: Option<&str>) -> bool {
    match (expression, key) {
        (Expr::Filter(filter), _) => filter.expr.as_ref().is_some_and(|of| reads(of, name, key)),
        (Expr::Test(test), _) => reads(&test.expr, name, key),
        (Expr::Slice(slice), _) => reads(&slice.expr, name, key),
        (Expr::GetAttr(of), Some(key)) => of.name == key && name_of(&of.expr) == Some(name),
        (Expr::GetItem(of), Some(key)) => {
            let Expr::Const(subscript) = &of.subscript_expr else { return false };
            subscript.value.as_str() == Some(key) && name_of(&of.expr) == Some(name)
        }
        (expression, None) => name_of(expression) == Some(name),
        _ => false,
    }
}

fn name_of<'a>(expression: &Expr<'a>) -> Option<&'a str> {
    if let Expr::Var(variable) = expression { Some(variable.id) } else { None }
}

/// A loop, and the innermost macro that it stands in.
struct FoundLoop<'t, 'a> {
    looped: &'t ForLoop<'a>,
    within: Option<usize>,
}

/// What the rules look at, in the order of the source.
#[derive(Default)]
struct Found<'t, 'a> {
    loops: Vec<FoundLoop<'t, 'a>>,
    sets: Vec<&'t Set<'a>>,
    macros: Vec<&'t Macro<'a>>,
    calls: Vec<&'t ast::Call<'a>>,
}

impl<'t, 'a> Found<'t, 'a> {
    /// The parameters of a macro that some call hands a message's content to.
    fn arguments_with_content(&self, within: usize, messages: &[&str]) -> BTreeSet<&'a str> {
        let mut parameters = BTreeSet::new();
        let Some(callee) = self.macros.get(within) else { return parameters };
        let content = |argument: &Expr<'_>| {
            messages.iter().any(|name| reads(argument, name, Some("content")))
        };
        let names = || callee.args.iter().filter_map(name_of);
        for call in self.calls.iter().filter(|call| name_of(&call.expr) == Some(callee.name)) {
            let positional = call.args.iter().filter_map(|argument| match argument {
                CallArg::Pos(value) => Some(value),
                CallArg::Kwarg(..) | CallArg::PosSplat(_) | CallArg::KwargSplat(_) => None,
            });
            parameters.extend(
                names().zip(positional).filter(|(_, value)| content(value)).map(|(name, _)| name),
            );
            for argument in &call.args {
                if let CallArg::Kwarg(name, value) = argument
                    && content(value)
                {
                    parameters.extend(names().filter(|parameter| parameter == name));
                }
            }
        }
        parameters
    }

    fn statements(&mut self, statements: &'t [Stmt<'a>], within: Option<usize>) {
        for statement in statements {
            self.statement(statement, within);
        }
    }

    fn statement(&mut self, statement: &'t Stmt<'a>, within: Option<usize>) {
        match statement {
            Stmt::Template(of) => self.statements(&of.children, within),
            Stmt::EmitExpr(of) => self.expression(&of.expr),
            Stmt::ForLoop(of) => {
                self.loops.push(FoundLoop { looped: of, within });
                self.expression(&of.iter);
                self.expressions(of.filter_expr.iter());
                self.statements(&of.body, within);
                self.statements(&of.else_body, within);
            }
            Stmt::IfCond(of) => {
                self.expression(&of.expr);
                self.statements(&of.true_body, within);
                self.statements(&of.false_body, within);
            }
            Stmt::WithBlock(of) => {
                self.expressions(of.assignments.iter().map(|(_, value)| value));
                self.statements(&of.body, within);
            }
            Stmt::Set(of) => {
                self.sets.push(of);
                self.expression(&of.expr);
            }
            Stmt::SetBlock(of) => self.statements(&of.body, within),
            Stmt::AutoEscape(of) => self.statements(&of.body, within),
            Stmt::FilterBlock(of) => self.statements(&of.body, within),
            Stmt::Block(of) => self.statements(&of.body, within),
            Stmt::Macro(of) => {
                self.macros.push(of);
                let within = Some(self.macros.len() - 1);
                self.expressions(of.defaults.iter());
                self.statements(&of.body, within);
            }
            Stmt::CallBlock(of) => {
                self.call(&of.call);
                self.statements(&of.macro_decl.body, within);
            }
            Stmt::Do(of) => self.call(&of.call),
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
            Stmt::Import(_) | Stmt::FromImport(_) | Stmt::Extends(_) | Stmt::Include(_) => {}
        }
    }

    fn call(&mut self, call: &'t ast::Call<'a>) {
        self.calls.push(call);
        self.expression(&call.expr);
        self.arguments(&call.args);
    }

    fn arguments(&mut self, arguments: &'t [CallArg<'a>]) {
        self.expressions(arguments.iter().map(|argument| match argument {
            CallArg::Pos(value) | CallArg::Kwarg(_, value) => value,
            CallArg::PosSplat(value) | CallArg::KwargSplat(value) => value,
        }));
    }

    fn expressions(&mut self, expressions: impl Iterator<Item = &'t Expr<'a>>) {
        for expression in expressions {
            self.expression(expression);
        }
    }

    /// Only calls are of interest in an expression.
    fn expression(&mut self, expression: &'t Expr<'a>) {
        match expression {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(of) => {
                self.expression(&of.expr);
                self.expressions([&of.start, &of.stop, &of.step].into_iter().flatten());
            }
            Expr::UnaryOp(of) => self.expression(&of.expr),
            Expr::BinOp(of) => self.expressions([&of.left, &of.right].into_iter()),
            Expr::Compare(of) => {
                self.expression(&of.expr);
                self.expressions(of.ops.iter().map(|compared| &compared.expr));
            }
            Expr::IfExpr(of) => {
                self.expressions([&of.test_expr, &of.true_expr].into_iter().chain(&of.false_expr));
            }
            Expr::Filter(of) => {
                self.expressions(of.expr.iter());
                self.arguments(&of.args);
            }
            Expr::Test(of) => {
                self.expression(&of.expr);
                self.arguments(&of.args);
            }
            Expr::GetAttr(of) => self.expression(&of.expr),
            Expr::GetItem(of) => self.expressions([&of.expr, &of.subscript_expr].into_iter()),
            Expr::Call(of) => self.call(of),
            Expr::List(of) => self.expressions(of.items.iter()),
            Expr::Tuple(of) => self.expressions(of.items.iter()),
            Expr::Map(of) => self.expressions(of.keys.iter().chain(&of.values)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ContentForm::{Parts, Text};

    #[test]
    fn loops_over_content_are_found_as_each_engine_finds_them() {
        let over_messages =
            |body: &str| format!("{{% for message in messages %}}{body}{{% endfor %}}");
        for (source, vllm, sglang) in [
            (over_messages("{{ message.content }}"), Text, Text),
            (over_messages("{% for c in message['content'] %}{% endfor %}"), Parts, Parts),
            (over_messages("{% for c in message.content[1:] | list %}{% endfor %}"), Parts, Parts),
            (over_messages("{% set content = message.content %}{% for c in content %}{% endfor %}"), Parts, Text),
            (over_messages("{% for c in message.tool_calls %}{% endfor %}"), Text, Text),
            (over_messages("{{ message.content }} no images"), Text, Parts),
            // Through another name; SGLang knows three names only.
            ("{% set all = messages[1:] %}{% for x in all %}{% for c in x.content %}{% endfor %}{% endfor %}".into(), Parts, Text),
            // Through a macro's parameter, by place and by name.
            ("{% macro show(y) %}{% for c in y %}{% endfor %}{% endmacro %}{% for x in messages %}{{ show(x.content) }}{% endfor %}".into(), Parts, Text),
            ("{% macro show(y) %}{% for c in y %}{% endfor %}{% endmacro %}{% for x in messages %}{{ show(y=x.content) }}{% endfor %}".into(), Parts, Text),
            ("{% macro show(content) %}{% for c in content %}{% endfor %}{% endmacro %}{% for x in messages %}{{ show(x.name) }}{% endfor %}".into(), Text, Text),
            // A target that is no single name: vLLM gives up.
            ("{% for a, b in messages %}{% for c in a.content %}{% endfor %}{% endfor %}".into(), Text, Text),
            ("{% if %}".into(), Text, Text),
        ] {
            assert_eq!(of(&source), (vllm, sglang), "{source}");
        }
    }
}
