"""The main controller: from what is wanted to what is. Templates of groups become pods, pods of silent nodes others."""
