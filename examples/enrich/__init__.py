"""The second example: a waterfall of three paid services over real airports, none of them paid twice, whatever breaks."""
