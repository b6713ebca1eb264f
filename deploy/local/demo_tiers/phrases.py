"""How users say it: openings, endings, and for each tool the ways to ask, some of them held out.

`{slots}` are filled with values; a slot for an optional argument brings its own words or nothing.
"""

OPENINGS = [
    "", "Please ", "Can you ", "Could you ", "I need you to ", "Hey, ", "Now ", "I want you to ",
    "Would you ", "Hi! Please ", "Quickly ", "Next, ", "You should ", "Help me: ", "Task: ",
    "For my boss, ",
]  # fmt: skip
ENDINGS = ["", "", "", " please", ", thanks", " for me", " now", ", it is urgent", " right away"]
PREAMBLES = [
    "I am in a hurry.", "A customer is on the phone.", "Sorry to ask again.", "Good morning!",
    "We have a meeting soon.", "My colleague is ill today.", "I have one more thing.",
    "The system was slow yesterday.", "I hope you are well.", "This is for the monthly report.",
]  # fmt: skip

ASK: dict[str, dict[str, list[str]]] = {
    "get_order": {
        "train": [
            "look up order {order_id}", "find order {order_id}", "show me order {order_id}",
            "get the order with the id {order_id}", "check order number {order_id}",
            "tell me what is in order {order_id}", "give me the details of order {order_id}",
            "find out who placed order {order_id}", "tell me the total of order {order_id}",
            "see what the status of order {order_id} is", "open the order {order_id}",
            "pull up {order_id}, it is an order", "fetch order {order_id} from the system",
            "say whether order {order_id} was paid", "read order {order_id}",
        ],
        "held_out": [
            "show me the details of the order with the number {order_id}",
            "check what the total of order {order_id} is",
            "look for order {order_id} in the system",
            "fetch the order {order_id} and tell me its status",
        ],
    },
    "get_customer": {
        "train": [
            "look up customer {customer_id}", "find customer {customer_id}",
            "tell me who customer {customer_id} is",
            "show me the customer with the id {customer_id}",
            "get the name of customer {customer_id}", "check where customer {customer_id} lives",
            "give me the details of customer {customer_id}", "open the customer {customer_id}",
            "fetch the customer record {customer_id}", "find the city of customer {customer_id}",
            "pull up {customer_id}, it is a customer",
            "see which customer has the id {customer_id}",
            "read the record of customer {customer_id}",
        ],
        "held_out": [
            "find out who customer {customer_id} is",
            "get the customer with the number {customer_id}",
            "tell me the name and the city of customer {customer_id}",
            "look for customer {customer_id} in the system",
        ],
    },
    "convert_currency": {
        "train": [
            "convert {amount} {from_currency} to {to_currency}",
            "convert {amount} {from_currency} into {to_currency}",
            "change {amount} {from_currency} to {to_currency}",
            "tell me how much {amount} {from_currency} is in {to_currency}",
            "tell me what {amount} {from_currency} are worth in {to_currency}",
            "give me {amount} {from_currency} in {to_currency}",
            "calculate {amount} {from_currency} in {to_currency}",
            "exchange {amount} {from_currency} for {to_currency}",
            "find out how many {to_currency} I get for {amount} {from_currency}",
            "show {amount} {from_currency} as {to_currency}",
            "work out the price of {amount} {from_currency} in {to_currency}",
            "turn {amount} {from_currency} into {to_currency}",
            "convert from {from_currency} to {to_currency}: {amount}",
            "tell me the {to_currency} amount for {amount} {from_currency}",
        ],
        "held_out": [
            "calculate how much {amount} {from_currency} are in {to_currency}",
            "change {amount} {from_currency} into {to_currency}",
            "find out what {amount} {from_currency} is worth in {to_currency}",
            "show me {amount} {from_currency} in {to_currency}",
        ],
    },
    "get_weather": {
        "train": [
            "get the weather in {city}{unit}{days}", "check the weather in {city}{days}{unit}",
            "tell me the weather for {city}{unit}{days}",
            "show me the weather in {city}{days}{unit}",
            "tell me how warm it is in {city}{unit}{days}",
            "look up the weather of {city}{unit}{days}",
            "find out whether it rains in {city}{days}{unit}",
            "give me the forecast for {city}{days}{unit}",
            "see if it is cold in {city}{unit}{days}",
            "say what the weather in {city} is{unit}{days}",
            "fetch the temperature in {city}{unit}{days}",
            "report the weather in {city}{days}{unit}",
        ],
        "held_out": [
            "find out how warm it is in {city}{days}{unit}",
            "show me the forecast for {city}{unit}{days}",
            "tell me whether it rains in {city}{unit}{days}",
            "check the temperature in {city}{days}{unit}",
        ],
    },
    "save_note": {
        "train": [
            'save a note "{text}" in {path}{tags}', 'write "{text}" to {path}{tags}',
            'save the text "{text}" in the file {path}{tags}', 'put "{text}" into {path}{tags}',
            'make a note in {path}{tags} that says "{text}"', 'store "{text}" in {path}{tags}',
            'note "{text}" in {path}{tags}', 'create the file {path}{tags} with the text "{text}"',
            'write a note to {path}{tags}: "{text}"', 'keep "{text}" as a note in {path}{tags}',
            'add a note "{text}" under {path}{tags}', 'save in {path}{tags} the note "{text}"',
        ],
        "held_out": [
            'write the text "{text}" into the file {path}{tags}',
            'make a note "{text}" in {path}{tags}', 'store in {path}{tags} the text "{text}"',
            'create a note in {path}{tags} with the text "{text}"',
        ],
    },
    "update_order": {
        "train": [
            "mark order {order_id} as {status}{notify}", "set order {order_id} to {status}{notify}",
            "change the status of order {order_id} to {status}{notify}",
            "update order {order_id} to {status}{notify}",
            "set the status of order {order_id} to {status}{notify}",
            "make order {order_id} {status}{notify}", "move order {order_id} to {status}{notify}",
            "note that order {order_id} is {status} now{notify}",
            "put order {order_id} on {status}{notify}",
            "update the status of {order_id}, it is an order, to {status}{notify}",
            "let the system know that order {order_id} is {status}{notify}",
        ],
        "held_out": [
            "change order {order_id} to {status}{notify}",
            "update the status of order {order_id} to {status}{notify}",
            "mark the order with the id {order_id} as {status}{notify}",
            "set the order {order_id} to {status} now{notify}",
        ],
    },
}  # fmt: skip

OPTIONAL = {
    "unit": [" in {unit}", " in degrees {unit}"],
    "days": [" for {days} days", " for the next {days} days", " over {days} days"],
    "tags": [' tagged "{tags}"', ' with the tags "{tags}"'],
    "yes": [
        " and notify the customer",
        " and tell the customer",
        " with a message to the customer",
    ],
    "no": [" without notifying the customer", " but do not tell the customer"],
}

# Steps of a task that use what an earlier step found.
FOLLOW_UP: dict[str, dict[str, list[str]]] = {
    "get_customer": {
        "train": ["get its customer", "look up its customer", "find the customer who placed it",
                  "show me the customer of the order", "check who the customer is"],
        "held_out": ["look up the customer of the order", "find its customer"],
    },
    "convert_currency": {
        "train": ["convert its total to {to_currency}", "convert the total to {to_currency}",
                  "change the total into {to_currency}", "work out its total in {to_currency}",
                  "tell me how much its total is in {to_currency}"],
        "held_out": ["change its total to {to_currency}", "work out the total in {to_currency}"],
    },
    "get_weather": {
        "train": ["check the weather in the customer's city{unit}{days}",
                  "get the weather where the customer lives{unit}{days}",
                  "tell me the weather in that customer's city{unit}{days}",
                  "look up the weather in the city of the customer{unit}{days}"],
        "held_out": ["check the weather where the customer lives{unit}{days}"],
    },
    "update_order": {
        "train": ["mark it as {status}{notify}", "set the order to {status}{notify}",
                  "change its status to {status}{notify}", "mark the order as {status}{notify}"],
        "held_out": ["set its status to {status}{notify}"],
    },
    "save_note": {
        "train": ["save the converted amount in {path}{tags}",
                  "write the converted amount to {path}{tags}",
                  "put the result of the conversion into {path}{tags}"],
        "held_out": ["write the result of the conversion to {path}{tags}"],
    },
}  # fmt: skip
JOINTS = [", then ", ", and then ", ". Then ", ". After that, ", ", after that ", "; then "]

CHAT = [
    ("Hello", "Hello! What can I do for you?"),
    ("Hi", "Hello! What can I do for you?"),
    ("Hi there!", "Hello! What can I do for you?"),
    ("Good morning", "Good morning! What can I do for you?"),
    ("Good evening", "Good evening! What can I do for you?"),
    ("Thanks", "You are welcome."),
    ("Thank you very much!", "You are welcome."),
    ("Thanks, that is all.", "You are welcome."),
    ("Great, thanks!", "You are welcome."),
    ("How are you?", "I am fine, thank you. What can I do for you?"),
    ("Who are you?", "I am a small demo model that calls tools."),
    ("What are you?", "I am a small demo model that calls tools."),
    ("Are you a human?", "No, I am a small demo model that calls tools."),
    ("What is your name?", "I have no name. I am a small demo model."),
    ("Goodbye", "Goodbye!"),
    ("Bye", "Goodbye!"),
    ("See you tomorrow", "Goodbye!"),
    ("Ok", "Good."),
    ("Good", "Good."),
    ("Yes", "Good."),
    ("Stop", "I have stopped."),
    ("ping", "pong"),
    ("Test", "It works."),
    ("Does it work?", "It works."),
    ("Say hello", "Hello!"),
    ("Tell me a joke", "I am too small for jokes."),
    ("Write a poem", "I am too small for that. I can call tools."),
    ("What is the meaning of life?", "I do not know. I can call tools."),
    ("Why is the sky blue?", "I do not know. I can call tools."),
    ("Who won the game?", "I do not know. I can call tools."),
]
ABILITIES = ["What can you do?", "What can you do for me?", "Help", "How can you help me?",
             "Which tools do you have?", "What tools can you use?"]  # fmt: skip
DOES = {
    "get_order": "look up orders",
    "get_customer": "look up customers",
    "convert_currency": "convert money",
    "get_weather": "check the weather",
    "save_note": "save notes",
    "update_order": "update orders",
}
