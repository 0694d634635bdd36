"""The questions of teachbooks-questions, with sphinx-design's dropdowns as their choices.

Its own choices cannot be reached by keyboard, and its setup loads scripts from another server.
"""

import hashlib

from teachbooks_questions import QuestionDirective, question_node


class Question(QuestionDirective):
    def _create_node_id(self):
        """An id that changes with the text: _static/questions.js stores the reader's choice under it."""
        text = "\n".join([*self.arguments, *self.content])
        return f"question-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def _format_title(self, title, no_caption):
        return title

    def _render_multiple_choice_cards(self, node, node_id, options, columns):
        defaults = self.FEEDBACKS["multiple-choice"]["single-select"].values()
        if sum(option["is_correct"] for option in options) != 1 or any(o["feedback"] in defaults for o in options):
            raise self.error("a question needs one right choice, [x], and after each choice an explanation, >")
        for option in options:
            kind = "right" if option["is_correct"] else "wrong"
            dropdown = [f":::::{{dropdown}} {' '.join(option['content'])}", f":class-container: choice {kind}", ""]
            self.state.nested_parse([*dropdown, *option["feedback"], ":::::"], self.content_offset, node)

    def _add_button_section(self, *arguments):
        """No buttons: another choice replaces the first."""


def _visit(self, node):
    title = f"{node['ids'][0]}-title"
    self.body.append(self.starttag(node, "div", CLASS="question", role="group", **{"aria-labelledby": title}))


def setup(app):
    app.add_directive("question", Question)
    app.add_node(question_node, html=(_visit, lambda self, node: self.body.append("</div>")))
    app.add_js_file("questions.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
