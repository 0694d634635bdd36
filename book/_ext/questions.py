"""The questions of teachbooks-questions with sphinx-design's dropdowns as choices.

Its own cards cannot be reached by keyboard and say "Try again" in every language, and its setup loads scripts from
another server. A dropdown is HTML's <details>; _static/questions.js keeps which one a reader has opened.
"""

import hashlib

from teachbooks_questions import QuestionDirective, question_node


class Question(QuestionDirective):
    def _create_node_id(self):
        """An id that changes with the question, so that a stored choice is never taken for one of another question."""
        text = "\n".join([*self.arguments, *self.content])
        return f"question-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def _format_title(self, title, no_caption):
        return title

    def _render_multiple_choice_cards(self, node, node_id, options, columns):
        for option in options:
            verdict = "right" if option["is_correct"] else "wrong"
            dropdown = [f":::::{{dropdown}} {' '.join(option['content'])}", f":class-container: choice {verdict}", ""]
            self.state.nested_parse([*dropdown, *option["feedback"], ":::::"], self.content_offset, node)

    def _add_button_section(self, *arguments):
        """No button: choosing again is enough."""


def _visit(self, node):
    title = f"{node['ids'][0]}-title"
    self.body.append(self.starttag(node, "div", CLASS="question", role="group", **{"aria-labelledby": title}))


def _depart(self, node):
    self.body.append("</div>")


def setup(app):
    app.add_directive("question", Question)
    app.add_node(question_node, html=(_visit, _depart))
    app.add_js_file("questions.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
