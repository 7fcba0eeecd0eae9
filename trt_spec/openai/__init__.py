"""An endpoint that speaks the OpenAI API, in front of the orchestrator of any repository that trtspec deploys."""
