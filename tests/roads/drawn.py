"""What is drawn of each case of `pictured`: read by a person before it was kept here."""

from __future__ import annotations

DRAWN: dict[str, str] = {
    "if, elif, else": """
├─ if n == 1
│  └─ step one#1
├─ elif n == 2
│  └─ step the-other#1
├─ else
│  └─ step one#1
└─ step one#1-2
""",
    "an early return": """
├─ if n
│  ├─ step one#1
│  └─ return 1
└─ step one#1
""",
    "ways that meet": """
├─ if n
│  └─ step one#1
└─ step one#1-2
""",
    "a for loop": """
├─ for i in range(n)
│  ├─ if i == 3
│  │  └─ break
│  ├─ if i == 2
│  │  └─ continue
│  └─ step one#*
├─ when it ended without a break
│  └─ step the-other#1
└─ step one#*
""",
    "a while loop": """
└─ while await ctx.step(one)
   ├─ step one#*
   └─ value now#*
""",
    "try, except, finally": """
├─ try
│  ├─ step boom#1   begun once
│  └─ step one#1
├─ except StepFailed
│  └─ step the-other#1
└─ finally
   └─ step the-other#1-2
""",
    "try, finally": """
├─ try
│  └─ step one#1
└─ finally
   └─ step the-other#1
""",
    "suppress": """
├─ try
│  ├─ step boom#1   begun once
│  └─ step one#1
├─ except StepFailed
└─ step one#1-2
""",
    "match": """
└─ match n
   ├─ case 1
   │  └─ step one#1
   ├─ case 2 | 3 if n > 2
   │  └─ child kid#1
   └─ case _
      └─ raise ValueError('no')
""",
    "with": """
└─ with asyncio.timeout(5)
   └─ signal review#1   within timedelta(days=3)
""",
    "gather": """
├─ gather, all at once
│  ├─ step one#1
│  ├─ step one#2
│  └─ for i in range(n)
│     └─ step the-other#*
└─ step one#3
""",
    "a task group": """
├─ TaskGroup, all at once
│  ├─ if n
│  │  └─ group.create_task(ctx.step(one, 2)), awaited elsewhere
│  │     └─ step one#1-4
│  ├─ step one#1-2
│  └─ pair(ctx, one)
│     ├─ step one#1-3
│     └─ sleep nap#1   for 0
└─ step one#3-4
""",
    "tasks": """
├─ asyncio.create_task(ctx.step(one, 1)), awaited elsewhere
│  └─ step one#1-2
└─ step one#1-2
""",
    "comprehensions": """
├─ for i in range(n)
│  └─ step one#*
└─ for k in a
   ├─ value random#*
   └─ step the-other#*
""",
    "conditions inside expressions": """
├─ if n
│  └─ step one#1
├─ else
│  └─ step the-other#1
├─ if n > 3
│  └─ value uuid#1
├─ value now#1
└─ if not await ctx.now()
   └─ value random#1
""",
    "functions inside": """
├─ local(1)
│  └─ step one#1
├─ local(2)
│  └─ step one#2
└─ named(1)
   └─ step the-other#1
""",
    "a function that returns early": """
├─ local(n)
│  ├─ if k
│  │  ├─ step one#1
│  │  └─ return
│  └─ value now#1
└─ step one#1-2
""",
    "functions that are passed on": """
├─ twice(local)
│  ├─ make()
│  │  └─ step one#1
│  └─ make()
│     └─ step one#2
├─ twice(lambda: ctx.step(two))
│  ├─ make()
│  │  └─ step the-other#1
│  └─ make()
│     └─ step the-other#2
└─ gather, all at once
   └─ lambda k: ctx.step(boom, k), called by others and any number of times
      └─ step boom#*   begun once
""",
    "a function that is defined twice": """
├─ as of line 69
│  └─ way()
│     └─ step one#1
└─ as of line 72
   └─ way()
      └─ step the-other#1
""",
    "a function within itself": """
└─ lambda: twice(lambda: ctx.step(one)), called by others and any number of times
   └─ lambda: ctx.step(one), called by others and any number of times
      └─ step one#*
""",
    "helpers": """
├─ pair(ctx, one)
│  ├─ step one#1
│  └─ sleep nap#1   for 0
├─ pair(ctx, two, name='rest')
│  ├─ step the-other#1
│  └─ sleep rest#1   for 0
├─ pair(ctx, *[one])
│  ├─ step step?#*
│  └─ sleep name?#*   for 0
└─ sent(ctx)
   └─ step one#2-3
""",
    "recursion": """
├─ down(ctx, n, one), which calls itself
│  └─ step step?#*
└─ step one#*
""",
    "a generator": """
└─ for number in numbers(ctx)
   ├─ numbers(ctx), in turns with what follows
   │  ├─ step one#*
   │  └─ step one#*
   └─ step one#*
""",
    "every word": """
├─ map one#1   over [1, 2], key str, concurrency 2
├─ sleep nap#1   for timedelta(seconds=1)
├─ signal go#1
├─ first of, all at once
│  ├─ signal a#1   within 3
│  └─ signal b#1   within 3
├─ step signal go#1   sent to 'other-run'
├─ child kid#1
├─ child kid#2   goes on at once, id 'k'
├─ value now#1
├─ value random#1
├─ value uuid#1
├─ value changed v2#1   asked once
└─ value changed v2#1   asked once
""",
    "data plays": """
├─ map one#1   over [1, 2], size 2, key str
├─ waterfall
│  ├─ first
│  │  ├─ step one#1
│  │  └─ value waterfall mail: one#1
│  └─ or else
│     ├─ step the-other#1
│     └─ value waterfall mail: the-other#1
├─ waterfall
│  └─ first
│     ├─ step steps?#*
│     └─ value waterfall mail: steps?#*
└─ step one#1-3
""",
    "names that are expressions": """
├─ sleep f'nap {n}'?#*   for 0
├─ sleep nap 1#1-2   for 0
├─ sleep nap review#1-2   for 0
├─ step step?#*
└─ step one#1-2
""",
    "what is not followed": """
├─ step one#1
├─ ! outside.work(ctx): not followed
├─ step one#*
└─ ! ctx.step is passed on
""",
    "nothing": """
no boundaries: nothing that it does is recorded
""",
}
