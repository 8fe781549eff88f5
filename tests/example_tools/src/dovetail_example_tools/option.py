"""`dovetail compile --hello WHO` and `dovetail.compile(..., hello="WHO")`: a greeting beside the result."""

from dovetail.plugin import Option, UsageError


class Greeted(Option):
    """Puts `hello.txt` beside the result."""

    commands = ("compile",)
    keywords = ("hello",)

    def add_arguments(self, parser):
        parser.add_argument("--hello", metavar="WHO", help="put a greeting beside the result")

    def keywords_of(self, args):
        if args.hello == "":
            raise UsageError("--hello greets nobody", "name somebody, or leave it out")
        return {"hello": args.hello}

    def recorded(self, keywords):
        return {"who": keywords["hello"]} if keywords.get("hello") else {}

    def finish(self, job, compiled):
        if who := job.keywords.get("hello"):
            from dovetail_example_tools.greeting import hello

            compiled.files["hello.txt"] = f"{hello(who)}: {compiled.coverage()}\n"


GREETED = Greeted()
